"""Finds where each output position comes from, by content: batches may be sorted, padded, packed,
cut or extended."""

import math
from collections.abc import Sequence
from difflib import SequenceMatcher

import numpy as np

CERTAIN = 0.98  # the share of equal tokens above which no other order is tried
BETTER = 0.02  # the share that another order must explain in addition


def sources(
    ids: np.ndarray,
    real: np.ndarray,
    outputs: np.ndarray,
    known: np.ndarray,
    gram: int | None = None,
    special: Sequence[int] = (),
) -> np.ndarray:
    """The flat index into `ids` of the token at each output position, -1 for a token that was
    added.

    `ids` and `real` are the text's, `[rows, width]`. `outputs` and `known` are the target's answer,
    `[other rows, other width]`: its inputs, and the same with labels put back. A place is found by
    `gram` tokens in a row; by default, as many as suffice for random tokens. `special` are ids that
    a target may add.
    """
    places, extra = np.arange(ids.size).reshape(ids.shape), outputs.shape[1] - ids.shape[1]
    lefts = sorted({0, extra}) if len(outputs) == len(ids) and extra >= 0 else []
    candidates = [
        np.pad(places, ((0, 0), (left, extra - left)), constant_values=-1) for left in lefts
    ]

    def fit(found: np.ndarray, shown: np.ndarray) -> float:
        return float(
            ((found >= 0) & (shown == ids.ravel()[found]) & real.ravel()[found]).sum()
            / max(1, real.sum())
        )

    best = max(candidates, key=lambda found: fit(found, known), default=None)
    if best is not None:
        best = with_moved_tokens(ids, best, outputs, known, special)
        if fit(best, known) > CERTAIN:
            return best
    found = by_anchors(ids, real, known, gram)
    if (outputs == ids.ravel()[found])[found >= 0].sum() < 0.5 * (
        found >= 0
    ).sum():  # labels may be wrong
        found = max(
            found, by_anchors(ids, real, outputs, gram), key=lambda each: fit(each, outputs)
        )
    return found if best is None or fit(found, known) > fit(best, known) + BETTER else best


def with_moved_tokens(
    ids: np.ndarray,
    found: np.ndarray,
    outputs: np.ndarray,
    known: np.ndarray,
    special: Sequence[int],
) -> np.ndarray:
    """The same places, corrected in rows from which tokens were removed, so that those after them
    moved to the left, or to which tokens that are special were added.

    Two neighbors that moved show such a row, or a special token that the text does not have there.
    One of the two must be visible, because labels may be shifted themselves.
    """
    found, here, following = (
        found.copy(),
        ids.ravel()[found],
        ids.ravel()[(found + 1).clip(max=ids.size - 1)],
    )
    moved, seen = (
        (found >= 0) & (shown != here) & (shown == following) for shown in (known, outputs)
    )
    pairs = moved[:, 1:] & moved[:, :-1] & (seen[:, 1:] | seen[:, :-1])
    added = np.isin(known, special) & (found >= 0) & (known != here)
    for row in np.flatnonzero(pairs.any(1) | added.any(1)):
        begin = found[row].max() // ids.shape[1] * ids.shape[1]
        text, found[row] = ids.ravel()[begin : begin + ids.shape[1]], -1
        for _, i, j, k, end in SequenceMatcher(
            None, text.tolist(), known[row].tolist(), autojunk=False
        ).get_opcodes():
            if j - i == end - k:  # equal, or replaced, but not a special token by another
                is_kept = (text[i:j] == known[row, k:end]) | ~np.isin(text[i:j], special)
                found[row, k:end] = np.where(is_kept, np.arange(begin + i, begin + j), -1)
    return found


def by_anchors(
    ids: np.ndarray, real: np.ndarray, shown: np.ndarray, gram: int | None
) -> np.ndarray:
    """Anchors are some tokens in a row that occur once in the text, confirmed by others at the same
    distance. Each extends over the tokens around it, up to the end of its row of the text."""
    width, at = ids.shape[1], np.arange(shown.shape[1])
    base = int(max(ids.max(), shown.max(initial=0))) + 2
    gram = gram or max(3, math.ceil(math.log(50 * ids.size) / math.log(base)))
    anchors = np.full(shown.shape, -1)
    if min(width, len(at)) < gram:
        return anchors
    codes = codes_of(np.where(real, ids, -1), base, gram)
    values, first, counts = np.unique(codes, return_index=True, return_counts=True)
    rows, columns = np.divmod(first[counts == 1], codes.shape[1])
    values, places = values[counts == 1], rows * width + columns
    if not len(values):  # all grams repeat, as in a batch of equal rows
        return anchors
    wanted = codes_of(shown, base, gram)
    index = np.searchsorted(values, wanted).clip(max=len(values) - 1)
    hit = values[index] == wanted
    for step in range(gram):
        anchors[:, step : step + wanted.shape[1]][hit] = places[index[hit]] + step
    distances = np.where(anchors >= 0, anchors - at, -ids.size) + ids.size
    of_rows = distances * len(shown) + np.arange(len(shown))[:, None]
    _, inverse, counts = np.unique(of_rows, return_inverse=True, return_counts=True)
    anchors[counts[inverse].reshape(anchors.shape) <= gram] = -1
    flat, exists = ids.ravel(), real.ravel()

    def extended(anchors: np.ndarray, direction: int) -> np.ndarray:
        """The places of the tokens from each anchor to the right, -1 beyond the end of its row of
        the text."""
        last = np.maximum.accumulate(np.where(anchors >= 0, at, -1), 1)
        place = np.take_along_axis(anchors, last.clip(0), 1)
        guess = place + direction * (at - last)
        valid = (last >= 0) & (guess >= 0) & (guess < ids.size)
        valid &= (guess // width == place // width) & exists[np.where(valid, guess, 0)]
        return np.where(valid, guess, -1)

    right, left = extended(anchors, 1), extended(anchors[:, ::-1], -1)[:, ::-1]
    # Between anchors that agree, tokens may have been replaced. Elsewhere, they may have been
    # added.
    fits_right = (right >= 0) & ((right == left) | (flat[right] == shown))
    return np.where(fits_right, right, np.where((left >= 0) & (flat[left] == shown), left, -1))


def codes_of(ids: np.ndarray, base: int, gram: int) -> np.ndarray:
    """A number per gram, `[rows, width - gram + 1]`: exact, or modulo 2^64 a hash."""
    windows = np.lib.stride_tricks.sliding_window_view(ids.astype(np.int64) + 1, gram, axis=1)
    return windows @ (base ** np.arange(gram, dtype=np.int64))
