"""Finds where each token of a batch comes from, by content: batches may be sorted, padded, packed,
cut or extended."""

import math
from collections.abc import Sequence
from difflib import SequenceMatcher

import numpy as np

from auditing.statistics import Array

CERTAIN = 0.98  # the share of equal tokens above which no other order is tried
BETTER = 0.02  # the share that another order must explain in addition


def sources(
    ids: Array,
    real: Array,
    inputs: Array,
    known: Array,
    gram: int | None = None,
    special: Sequence[int] = (),
) -> Array:
    """The flat index into `ids` of the token at each position of a batch, -1 for an added token.

    `ids` and `real` are the text's, `[rows, width]`. `inputs` are those of the batch, of any shape,
    and `known` are the inputs with labels put back. A place is found by `gram` tokens in a row; by
    default, by as many as suffice for random tokens. `special` are ids that a target may add.
    """
    flat = ids.ravel()

    def fit(places: Array, shown: Array) -> float:
        """The share of the text that stands at its place."""
        is_right = (places >= 0) & (shown == flat[places]) & real.ravel()[places]
        return float(is_right.sum() / max(1, real.sum()))

    in_order = places_in_order(ids, inputs.shape)
    if in_order:
        best = max(in_order, key=lambda places: fit(places, known))
        best = with_moved_tokens(ids, best, inputs, known, special)
        if fit(best, known) > CERTAIN:
            return best

    anchored = by_anchors(ids, real, known, gram)
    is_placed = anchored >= 0
    if (inputs == flat[anchored])[
        is_placed
    ].sum() < 0.5 * is_placed.sum():  # labels may be wrong
        others = by_anchors(ids, real, inputs, gram)
        anchored = max(anchored, others, key=lambda places: fit(places, inputs))
    if in_order and fit(anchored, known) <= fit(best, known) + BETTER:
        return best
    return anchored


def places_in_order(ids: Array, shape: tuple[int, ...]) -> list[Array]:
    """The places of a batch that has the rows of the text in their order, padded on either side."""
    n_rows, width = ids.shape
    extra = shape[1] - width
    if shape[0] != n_rows or extra < 0:
        return []
    places = np.arange(ids.size).reshape(ids.shape)
    paddings = [((0, 0), (left, extra - left)) for left in sorted({0, extra})]
    return [np.pad(places, padding, constant_values=-1) for padding in paddings]


def with_moved_tokens(
    ids: Array, places: Array, inputs: Array, known: Array, special: Sequence[int]
) -> Array:
    """The same places, corrected in two kinds of rows: those from which tokens were removed, so
    that the tokens after them moved to the left, and those to which special tokens were added.

    Two neighbors that moved show a row of the first kind. One of the two must be visible, because
    labels may be shifted themselves. A special token that the text does not have there shows a row
    of the second kind.
    """
    flat = ids.ravel()
    width = ids.shape[1]
    places = places.copy()
    here = flat[places]
    after = flat[(places + 1).clip(max=ids.size - 1)]
    is_text = places >= 0
    moved = is_text & (known != here) & (known == after)
    seen = is_text & (inputs != here) & (inputs == after)
    pairs = moved[:, 1:] & moved[:, :-1] & (seen[:, 1:] | seen[:, :-1])
    added = np.isin(known, special) & is_text & (known != here)

    for row in np.flatnonzero(pairs.any(1) | added.any(1)):
        begin = places[row].max() // width * width
        text = flat[begin : begin + width]
        places[row] = -1
        matcher = SequenceMatcher(
            None, text.tolist(), known[row].tolist(), autojunk=False
        )
        for _, i, j, k, end in matcher.get_opcodes():
            if (
                j - i == end - k
            ):  # equal, or replaced, but not a special token by another
                is_kept = (text[i:j] == known[row, k:end]) | ~np.isin(
                    text[i:j], special
                )
                places[row, k:end] = np.where(
                    is_kept, np.arange(begin + i, begin + j), -1
                )

    return places


def by_anchors(ids: Array, real: Array, shown: Array, gram: int | None) -> Array:
    """Places by anchors: some tokens in a row that occur once in the text, confirmed by others at
    the same distance. Each extends over the tokens around it, up to the end of its row."""
    base = int(max(ids.max(), shown.max(initial=0))) + 2
    gram = gram or max(3, math.ceil(math.log(50 * ids.size) / math.log(base)))
    if min(ids.shape[1], shown.shape[1]) < gram:
        return np.full(shown.shape, -1)
    anchors = anchors_of(ids, real, shown, gram, base)
    confirm(anchors, ids.size, gram)
    right = extended(anchors, real, 1)
    left = extended(anchors[:, ::-1], real, -1)[:, ::-1]
    # Between anchors that agree, tokens may have been replaced. Elsewhere, they may have been
    # added.
    flat = ids.ravel()
    fits_right = (right >= 0) & ((right == left) | (flat[right] == shown))
    fits_left = (left >= 0) & (flat[left] == shown)
    return np.where(fits_right, right, np.where(fits_left, left, -1))


def anchors_of(ids: Array, real: Array, shown: Array, gram: int, base: int) -> Array:
    """The places of grams that occur once in the text, -1 elsewhere."""
    anchors = np.full(shown.shape, -1)
    codes = codes_of(np.where(real, ids, -1), base, gram)
    values, first, counts = np.unique(codes, return_index=True, return_counts=True)
    rows, columns = np.divmod(first[counts == 1], codes.shape[1])
    values = values[counts == 1]
    if not len(values):  # all grams repeat, as in a batch of equal rows
        return anchors
    places = rows * ids.shape[1] + columns
    wanted = codes_of(shown, base, gram)
    index = np.searchsorted(values, wanted).clip(max=len(values) - 1)
    hit = values[index] == wanted
    for offset in range(gram):
        anchors[:, offset : offset + wanted.shape[1]][hit] = places[index[hit]] + offset
    return anchors


def confirm(anchors: Array, n_places: int, gram: int) -> None:
    """Remove anchors of a row that no other gram confirms at the same distance."""
    distances = np.where(
        anchors >= 0, anchors - np.arange(anchors.shape[1]) + n_places, 0
    )
    of_rows = distances * len(anchors) + np.arange(len(anchors))[:, None]
    _, inverse, counts = np.unique(of_rows, return_inverse=True, return_counts=True)
    anchors[counts[inverse].reshape(anchors.shape) <= gram] = -1


def extended(anchors: Array, real: Array, direction: int) -> Array:
    """The places of the tokens from each anchor to the right, -1 beyond the end of its row of the
    text. In the text, one goes to the right or, with a direction of -1, to the left."""
    width = real.shape[1]
    columns = np.arange(anchors.shape[1])
    last = np.maximum.accumulate(np.where(anchors >= 0, columns, -1), 1)
    anchor = np.take_along_axis(anchors, last.clip(0), 1)
    place = anchor + direction * (columns - last)
    is_valid = (last >= 0) & (place >= 0) & (place < real.size)
    is_valid &= place // width == anchor // width
    is_valid &= real.ravel()[np.where(is_valid, place, 0)]
    return np.where(is_valid, place, -1)


def codes_of(ids: Array, base: int, gram: int) -> Array:
    """A number per gram, `[rows, width - gram + 1]`: exact, or modulo 2^64 a hash."""
    windows = np.lib.stride_tricks.sliding_window_view(
        ids.astype(np.int64) + 1, gram, axis=1
    )
    return windows @ (base ** np.arange(gram, dtype=np.int64))
