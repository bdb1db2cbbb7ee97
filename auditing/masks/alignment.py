"""Finds where each output position comes from, by content: batches may be sorted, padded, packed, cut or extended."""

import math

import numpy as np

ENOUGH = 0.5  # the share of equal tokens from which output rows are the input rows


def sources(
    ids: np.ndarray, real: np.ndarray, outputs: np.ndarray, known: np.ndarray, special: np.ndarray
) -> np.ndarray:
    """The flat index into `ids` of the token at each output position, -1 for a token that was added.

    `ids` and `real` are the input's `[rows, width]`, `outputs` and `known` the output's `[other rows, other width]`:
    its inputs, and the same with labels put back. `special` are the ids that a collator may add.
    """
    n_rows, width = ids.shape
    places = np.arange(ids.size).reshape(ids.shape)
    if len(outputs) == n_rows and outputs.shape[1] >= width:
        for left in (0, outputs.shape[1] - width):
            inner = slice(left, left + width)
            equal = (outputs[:, inner] == ids) | (known[:, inner] == ids)
            if equal[real].mean() >= ENOUGH:
                return np.pad(places, ((0, 0), (left, outputs.shape[1] - width - left)), constant_values=-1)
    found = by_grams(ids, real, outputs, known, special)
    if (found >= 0).sum() < ENOUGH * min(real.sum(), outputs.size) and outputs.shape == ids.shape:
        return places  # too little is left of the text to recognize it
    return found


def by_grams(
    ids: np.ndarray, real: np.ndarray, outputs: np.ndarray, known: np.ndarray, special: np.ndarray
) -> np.ndarray:
    """Anchors are some tokens in a row that occur once in the text. Each extends over the tokens around it, up to the
    end of its row of the text, or to a special token that the text does not have there."""
    width, at = ids.shape[1], np.arange(outputs.shape[1])
    base = int(max(ids.max(), outputs.max(), known.max())) + 2
    gram = max(3, math.ceil(math.log(50 * ids.size) / math.log(base)))
    if min(width, len(at)) < gram:
        return np.full(outputs.shape, -1)
    codes = codes_of(np.where(real, ids, -1), base, gram)
    values, first, counts = np.unique(codes, return_index=True, return_counts=True)
    rows, columns = np.divmod(first[counts == 1], codes.shape[1])
    values, places = values[counts == 1], rows * width + columns
    anchors = np.full(outputs.shape, -1)
    for array in (known, outputs):
        wanted = codes_of(array, base, gram)
        index = np.searchsorted(values, wanted).clip(max=len(values) - 1)
        hit = values[index] == wanted
        for step in range(gram):
            anchors[:, step : step + wanted.shape[1]][hit] = places[index[hit]] + step
    flat, exists = ids.ravel(), real.ravel()

    def extended(anchored: np.ndarray, outputs: np.ndarray) -> np.ndarray:
        """The places of tokens from each anchor to the right."""
        last = np.maximum.accumulate(np.where(anchored >= 0, at, -1), 1)
        place = np.take_along_axis(anchored, last.clip(0), 1)
        guess = place + direction * (at - last)
        valid = (last >= 0) & (guess >= 0) & (guess < ids.size)
        guess = np.where(valid, guess, 0)
        valid &= (guess // width == place // width) & exists[guess]
        added = np.isin(outputs, special) & (flat[guess] != outputs)
        ends = np.maximum.accumulate(np.where(added, at, -1), 1)
        return np.where(valid, guess, -1), ends <= last

    direction = 1
    right, right_clear = extended(anchors, outputs)
    direction = -1
    left, left_clear = (part[:, ::-1] for part in extended(anchors[:, ::-1], outputs[:, ::-1]))
    agree = (right == left) & (right >= 0)
    fits_right, fits_left = (right >= 0) & (right_clear | agree), (left >= 0) & (left_clear | agree)
    better = fits_left & (flat[left.clip(0)] == known) & (flat[right.clip(0)] != known)
    return np.where(fits_right & ~better, right, np.where(fits_left, left, -1))


def codes_of(ids: np.ndarray, base: int, gram: int) -> np.ndarray:
    """One number per gram, `[rows, width - gram + 1]`."""
    windows = np.lib.stride_tricks.sliding_window_view(ids.astype(np.int64) + 1, gram, axis=1)
    return windows @ (base ** np.arange(gram, dtype=np.int64))
