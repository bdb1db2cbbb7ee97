"""The counting baseline: masked characters predicted from their visible neighbors by n-gram counts.

Two-sided n-grams with Witten-Bell interpolation (Witten and Bell 1991). The estimate from a context
of `before` characters on the left and `after` on the right is mixed with that from the next smaller
context,

    p(c | context) = (count(c, context) + types(context) * p(c | smaller)) / (total(context) + types(context)),

where types(context) is the number of different characters seen in the context. Contexts have up to
4 characters on each side and 7 in total, all visible and inside the window and the document. A
model with a higher loss has learned less than counting.
"""

from itertools import product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.uint64]

MAX_SIDE = 4
MAX_TOTAL = 7
OFFSETS_AT_ONCE = 1_000_000


class Counts(NamedTuple):
    """The result for each masked character, in the order of `masked.nonzero()`."""

    losses: npt.NDArray[np.float64]  # [n_masked] nats
    # [n_masked] whether the most frequent character of the longest context seen is right
    correct: Bools


def count(
    training: Ints,
    windows: Ints,
    masked: Bools,
    n_chars: int,
    documents: Ints | None = None,
) -> Counts:
    """Predict the masked characters of windows, each window alone; one call for many windows is
    fastest.

    `training` `[n_training_chars]` are the ids that are counted; `windows` and `masked` are
    `[n_windows, seq_len]`. Ids from `n_chars` on are special: they are contexts, and never
    predicted. `documents` `[n_windows, seq_len]` are the numbers of the characters' documents, of
    which only their own is a context.
    """
    frequencies = np.bincount(training, minlength=n_chars)[:n_chars]
    ids = windows.ravel()
    positions = np.flatnonzero(masked)
    truth = ids[positions]
    left, right = _visible_neighbors(masked, documents)

    probs = (frequencies[truth] + 0.5) / (frequencies.sum() + 0.5 * n_chars)
    best = np.full(len(truth), frequencies.argmax())
    # the smaller contexts were seen in training
    alive = np.ones(len(truth), dtype=bool)
    for size, before in product(range(1, MAX_TOTAL + 1), range(MAX_SIDE + 1)):
        # Contexts grow left and right in turn, left first, then on one side only once the other has
        # no more characters.
        after = size - before
        is_asked = np.minimum(left, np.maximum((size + 1) // 2, size - right)) == before
        asked = np.flatnonzero(alive & is_asked & (after <= right))
        if not len(asked):
            continue
        hashes = context_hashes(ids, positions[asked], before, after)
        contexts, context = np.unique(hashes, return_inverse=True)
        pairs, pair_counts = _count_pairs(training, before, after, n_chars, contexts)
        context_of_pair = pairs // n_chars
        # of each context: the characters seen in it, and how many of them are different
        totals = np.bincount(context_of_pair, pair_counts, len(contexts)).astype(
            np.int64
        )
        types = np.bincount(context_of_pair, minlength=len(contexts))
        is_seen = totals[context] > 0
        alive[asked[~is_seen]] = False
        seen = asked[is_seen]
        context = context[is_seen]
        of_truth = looked_up(context * n_chars + truth[seen], pairs, pair_counts)
        n_types = types[context]
        probs[seen] = (of_truth + n_types * probs[seen]) / (totals[context] + n_types)
        # the last pair of each context is its most frequent one
        by_count = np.lexsort((pair_counts, context_of_pair))
        best[seen] = pairs[by_count[types.cumsum()[context] - 1]] % n_chars

    return Counts(-np.log(probs), best == truth)


def _visible_neighbors(
    masked: Bools, documents: Ints | None = None
) -> tuple[Ints, Ints]:
    """The numbers of consecutive visible characters of the same document left and right of masked
    ones, at most MAX_SIDE each."""
    rows, columns = masked.nonzero()
    # as is everything outside the window
    hidden = np.pad(masked, ((0, 0), (MAX_SIDE, MAX_SIDE)), constant_values=True)
    columns += MAX_SIDE
    distances = np.arange(1, MAX_SIDE + 1)
    before = columns[:, None] - distances
    after = columns[:, None] + distances
    left = hidden[rows[:, None], before]
    right = hidden[rows[:, None], after]
    if documents is not None:
        numbers = np.pad(documents, ((0, 0), (MAX_SIDE, MAX_SIDE)))
        own = numbers[rows, columns][:, None]
        left |= numbers[rows[:, None], before] != own
        right |= numbers[rows[:, None], after] != own
    return (left.cumsum(1) == 0).sum(1), (right.cumsum(1) == 0).sum(1)


def context_hashes(ids: Ints, positions: Ints, before: int, after: int) -> Hashes:
    """A hash of 64 bits for the context of each position in `ids`, `[n_positions]`."""
    hashes = np.zeros(len(positions), dtype=np.uint64)
    for distance in [*range(-before, 0), *range(1, after + 1)]:
        hashes = mixed(hashes, ids[positions + distance])

    return hashes


def mixed(hashes: Hashes, ids: Ints) -> Hashes:
    """The hashes of contexts with one more character each."""
    # modulo 2^64
    products = (hashes + ids.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    return products ^ (products >> np.uint64(29))


def looked_up(asked: npt.NDArray[Any], known: npt.NDArray[Any], values: Ints) -> Ints:
    """The values of numbers in the sorted array `known`; 0 for others."""
    if not len(known):
        return np.zeros(len(asked), dtype=np.int64)

    nearest = np.searchsorted(known, asked).clip(max=len(known) - 1)
    return np.where(known[nearest] == asked, values[nearest], 0)


def _count_pairs(
    training: Ints, before: int, after: int, n_chars: int, contexts: Hashes
) -> tuple[Ints, Ints]:
    """The pairs of a context and a character in the training text, `[n_pairs]` each: sorted
    numbers, and counts.

    The number of a pair is the index of the context in the sorted `contexts`, times n_chars, plus
    the character. Other contexts are dropped, so memory does not grow with the text.
    """
    pairs = np.empty(0, dtype=np.int64)
    counts = np.empty(0, dtype=np.int64)
    for start in range(before, len(training) - after, OFFSETS_AT_ONCE):
        offsets = np.arange(start, min(start + OFFSETS_AT_ONCE, len(training) - after))
        offsets = offsets[training[offsets] < n_chars]
        hashes = context_hashes(training, offsets, before, after)
        nearest = np.searchsorted(contexts, hashes).clip(max=len(contexts) - 1)
        kept = contexts[nearest] == hashes
        new = nearest[kept] * n_chars + training[offsets[kept]]
        new_pairs, new_counts = np.unique(new, return_counts=True)
        pairs, inverse = np.unique(
            np.concatenate([pairs, new_pairs]), return_inverse=True
        )
        weights = np.concatenate([counts, new_counts])
        counts = np.bincount(inverse, weights=weights).astype(np.int64)

    return pairs, counts
