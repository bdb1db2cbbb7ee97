"""The counting baseline: masked characters predicted from their visible neighbors by n-gram counts.

Two-sided n-grams with Witten-Bell interpolation (Witten and Bell 1991). The estimate from a context of `before`
characters on the left and `after` on the right is mixed with that from the next smaller context,

    p(c | context) = (count(c, context) + types(context) * p(c | smaller)) / (total(context) + types(context)),

where types(context) is the number of different characters seen in the context. Contexts have up to 4 characters on
each side and 7 in total, all visible and inside the window. A model with a higher loss has learned less than counting.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

MAX_SIDE, MAX_TOTAL = 4, 7
# A context is a number with one digit per character. Seven digits in base 511 (510 frequent characters, and one digit
# shared by all rare ones) fit into 63 bits.
MAX_CHARACTERS_IN_CONTEXT = 510
OFFSETS_AT_ONCE = 1_000_000


class Counts(NamedTuple):
    """The result for each masked character, in the order of `masked.nonzero()`."""

    losses: npt.NDArray[np.float64]  # [n_masked] nats
    correct: Bools  # [n_masked] whether the most frequent character of the longest context seen is right


def count(training: Ints, windows: Ints, masked: Bools, n_chars: int) -> Counts:
    """Predict the masked characters of windows, each window alone; one call for many windows is fastest.

    `training` `[n_training_chars]` are the ids that are counted; `windows` and `masked` are `[n_windows, seq_len]`.
    """
    frequencies = np.bincount(training, minlength=n_chars)
    digits = np.empty(n_chars, dtype=np.int64)  # of each character: its rank by frequency
    digits[frequencies.argsort(kind="stable")[::-1]] = np.arange(n_chars).clip(max=MAX_CHARACTERS_IN_CONTEXT)
    base = int(digits.max()) + 1
    training_digits, window_digits = digits[training], digits[windows].ravel()
    positions, truth = np.flatnonzero(masked), windows[masked]
    left, right = _visible_neighbors(masked)

    probs = (frequencies[truth] + 0.5) / (len(training) + 0.5 * n_chars)
    best = np.full(len(truth), frequencies.argmax())
    alive = np.ones(len(truth), dtype=bool)  # the smaller contexts were seen in training
    for before, after in _context_sizes():
        asked = np.flatnonzero(alive & _uses(left, right, before, after))
        if not len(asked):
            continue
        contexts = _contexts(window_digits, positions[asked], before, after, base)
        found, total, types, of_truth, most_frequent = _look_up(
            training, training_digits, before, after, base, n_chars, contexts, truth[asked]
        )
        alive[asked[~found]] = False
        seen = asked[found]
        probs[seen] = (of_truth + types * probs[seen]) / (total + types)
        best[seen] = most_frequent
    return Counts(-np.log(probs), best == truth)


def _visible_neighbors(masked: Bools) -> tuple[Ints, Ints]:
    """The numbers of consecutive visible characters left and right of masked ones, at most MAX_SIDE each."""
    rows, columns = masked.nonzero()
    hidden = np.pad(masked, ((0, 0), (MAX_SIDE, MAX_SIDE)), constant_values=True)  # as is everything outside the window
    distances = np.arange(1, MAX_SIDE + 1)
    left = hidden[rows[:, None], columns[:, None] + MAX_SIDE - distances]
    right = hidden[rows[:, None], columns[:, None] + MAX_SIDE + distances]
    return (left.cumsum(1) == 0).sum(1), (right.cumsum(1) == 0).sum(1)


def _context_sizes() -> Iterator[tuple[int, int]]:
    """All context sizes (before, after), smaller ones first."""
    for total in range(1, MAX_TOTAL + 1):
        for before in range(max(0, total - MAX_SIDE), min(total, MAX_SIDE) + 1):
            yield before, total - before


def _uses(left: Ints, right: Ints, before: int, after: int) -> Bools:
    """Whether characters with `left` and `right` visible neighbors use this context size. Contexts grow left and right
    in turn, left first, then on one side only once the other has no more visible characters."""
    uses = (before <= left) & (after <= right)
    if before > after + 1:
        uses &= right == after
    elif before < after:
        uses &= left == before
    return uses


def _contexts(digits: Ints, positions: Ints, before: int, after: int, base: int) -> Ints:
    """The contexts of positions in `digits` as numbers, `[n_positions]`."""
    numbers = np.zeros(len(positions), dtype=np.int64)
    for distance in [*range(-before, 0), *range(1, after + 1)]:
        numbers = numbers * base + digits[positions + distance]
    return numbers


def _look_up(
    training: Ints, digits: Ints, before: int, after: int, base: int, n_chars: int, asked: Ints, truth: Ints
) -> tuple[Bools, Ints, Ints, Ints, Ints]:
    """Count one context size in the training text.

    Returns for each context in `asked` whether it was seen; and for those that were: its count, its number of
    different characters, its count with the true character, and its most frequent character.
    """
    contexts, at = np.unique(asked, return_inverse=True)
    pairs, pair_counts = _count_pairs(training, digits, before, after, base, n_chars, contexts)
    context_of_pair = pairs // n_chars
    totals = np.bincount(context_of_pair, weights=pair_counts, minlength=len(contexts)).astype(np.int64)
    types = np.bincount(context_of_pair, minlength=len(contexts))
    found = totals[at] > 0
    at = at[found]

    by_count = np.lexsort((pair_counts, context_of_pair))  # the last pair of each context is its most frequent one
    most_frequent = pairs[by_count[types.cumsum()[at] - 1]] % n_chars
    wanted = at * n_chars + truth[found]
    pair = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
    of_truth = np.where(pairs[pair] == wanted, pair_counts[pair], 0)
    return found, totals[at], types[at], of_truth, most_frequent


def _count_pairs(
    training: Ints, digits: Ints, before: int, after: int, base: int, n_chars: int, contexts: Ints
) -> tuple[Ints, Ints]:
    """The pairs of a context and a character in the training text, `[n_pairs]` each: sorted numbers, and counts.

    The number of a pair is the index of the context in the sorted `contexts`, times n_chars, plus the character. Other
    contexts are dropped, so memory does not grow with the text.
    """
    pairs: Ints = np.empty(0, dtype=np.int64)
    counts: Ints = np.empty(0, dtype=np.int64)
    for start in range(before, len(training) - after, OFFSETS_AT_ONCE):
        offsets = np.arange(start, min(start + OFFSETS_AT_ONCE, len(training) - after))
        numbers = _contexts(digits, offsets, before, after, base)
        at = np.minimum(np.searchsorted(contexts, numbers), len(contexts) - 1)
        kept = contexts[at] == numbers
        found, found_counts = np.unique(at[kept] * n_chars + training[offsets[kept]], return_counts=True)
        pairs, inverse = np.unique(np.concatenate([pairs, found]), return_inverse=True)
        counts = np.bincount(inverse, weights=np.concatenate([counts, found_counts])).astype(np.int64)
    return pairs, counts
