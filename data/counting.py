"""The counting baseline: what neighbouring characters alone tell of a hidden one.

Two-sided n-grams with Witten-Bell interpolation (Witten and Bell 1991): the estimate from a context of a characters
on the left and b on the right is mixed with that from the next smaller context,

    p(c | a, b) = (count(c; a, b) + types(a, b) * p(c | smaller)) / (total(a, b) + types(a, b)),

up to 4 characters on each side and 7 together, as far as they are visible and inside the window. A model that is
worse than this has learnt less than counting.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

MAX_SIDE, MAX_TOTAL = 4, 7
# Contexts are numbers with one digit a character: seven digits of 510 values and the mark of a rare one fit 63 bits.
MAX_CHARACTERS_IN_CONTEXT = 510
PLACES_AT_ONCE = 1_000_000


class Counts(NamedTuple):
    """What counting gives for each hidden character, in the order of `masked.nonzero()`."""

    losses: Floats  # [n_masked] nats
    correct: npt.NDArray[np.bool_]  # [n_masked] whether the commonest in the longest context seen is right


def count(training: Ints, windows: Ints, masked: npt.NDArray[np.bool_], n_chars: int) -> Counts:
    """Predict the hidden characters of windows, each window alone.

    `training` `[length]` are the ids that are counted; `windows` and `masked` are `[n_windows, seq_len]`. One call
    for many windows is cheapest: every context size is counted once.
    """
    digits = _context_digits(training, n_chars)
    base = int(digits.max()) + 1
    training_digits, window_digits = digits[training], digits[windows]
    rows, columns = masked.nonzero()
    truth = windows[rows, columns]
    left, right = _visible_neighbours(masked)
    left, right = left[rows, columns], right[rows, columns]

    frequencies = np.bincount(training, minlength=n_chars)
    probs = (frequencies[truth] + 0.5) / (len(training) + 0.5 * n_chars)
    best = np.full(len(truth), frequencies.argmax())
    alive = np.ones(len(truth), dtype=bool)  # the smaller context was seen in training
    for before, after in _context_sizes():
        asked = np.flatnonzero(alive & _uses(left, right, before, after))
        if not len(asked):
            continue
        contexts = _contexts(window_digits, rows[asked], columns[asked], before, after, base)
        found, total, types, of_truth, commonest = _look_up(
            training, training_digits, before, after, base, n_chars, contexts, truth[asked]
        )
        alive[asked[~found]] = False
        seen = asked[found]
        probs[seen] = (of_truth + types * probs[seen]) / (total + types)
        best[seen] = commonest
    return Counts(-np.log(probs), best == truth)


def _context_digits(training: Ints, n_chars: int) -> Ints:
    """The digit of each character in a context; those beyond the most frequent share one."""
    digits = np.arange(n_chars)
    if n_chars > MAX_CHARACTERS_IN_CONTEXT:
        by_frequency = np.bincount(training, minlength=n_chars).argsort(kind="stable")[::-1]
        digits = np.full(n_chars, MAX_CHARACTERS_IN_CONTEXT)
        digits[by_frequency[:MAX_CHARACTERS_IN_CONTEXT]] = np.arange(MAX_CHARACTERS_IN_CONTEXT)
    return digits


def _visible_neighbours(masked: npt.NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """How many visible characters stand in a row to the left and to the right of each place, at most MAX_SIDE."""
    n_windows, seq_len = masked.shape
    hidden = np.ones((n_windows, seq_len + 2 * MAX_SIDE), dtype=bool)  # beyond the window nothing is visible
    hidden[:, MAX_SIDE:-MAX_SIDE] = masked
    left, right = np.zeros((2, n_windows, seq_len), dtype=np.int64)
    unbroken_left, unbroken_right = np.ones((2, n_windows, seq_len), dtype=bool)
    for distance in range(1, MAX_SIDE + 1):
        unbroken_left &= ~hidden[:, MAX_SIDE - distance : MAX_SIDE - distance + seq_len]
        unbroken_right &= ~hidden[:, MAX_SIDE + distance : MAX_SIDE + distance + seq_len]
        left += unbroken_left
        right += unbroken_right
    return left, right


def _context_sizes() -> Iterator[tuple[int, int]]:
    """All context sizes, smaller ones before larger."""
    for total in range(1, MAX_TOTAL + 1):
        for before in range(max(0, total - MAX_SIDE), min(total, MAX_SIDE) + 1):
            yield before, total - before


def _uses(left: Ints, right: Ints, before: int, after: int) -> npt.NDArray[np.bool_]:
    """Where a character with so many visible neighbours uses this context size.

    Contexts grow by one character at a time, left and right in turn, the left first, until one side is used up.
    """
    table = np.zeros((MAX_SIDE + 1, MAX_SIDE + 1), dtype=bool)
    for most_before in range(MAX_SIDE + 1):
        for most_after in range(MAX_SIDE + 1):
            a = b = 0
            while (a, b) != (most_before, most_after) and (a, b) != (before, after):
                if a < most_before and (a <= b or b == most_after):
                    a += 1
                else:
                    b += 1
            table[most_before, most_after] = (a, b) == (before, after)
    return table[left, right]


def _contexts(digits: Ints, rows: Ints, columns: Ints, before: int, after: int, base: int) -> Ints:
    """The contexts of offsets as numbers."""
    numbers = np.zeros(len(rows), dtype=np.int64)
    for offset in [*range(-before, 0), *range(1, after + 1)]:
        numbers = numbers * base + digits[rows, columns + offset]
    return numbers


def _look_up(
    training: Ints, digits: Ints, before: int, after: int, base: int, n_chars: int, asked: Ints, truth: Ints
) -> tuple[npt.NDArray[np.bool_], Ints, Ints, Ints, Ints]:
    """Count one context size in the training text. For each context asked for: whether it was seen, and for those
    that were: how often, with how many different characters, how often with the true one, and the commonest."""
    contexts, at = np.unique(asked, return_inverse=True)
    pairs, pair_counts = _count_pairs(training, digits, before, after, base, n_chars, contexts)
    context_of_pair = pairs // n_chars
    totals = np.bincount(context_of_pair, weights=pair_counts, minlength=len(contexts)).astype(np.int64)
    types = np.bincount(context_of_pair, minlength=len(contexts))
    found = totals[at] > 0
    at = at[found]

    by_count = np.lexsort((pair_counts, context_of_pair))  # the last pair of each context is its commonest
    commonest = pairs[by_count[types.cumsum()[at] - 1]] % n_chars
    wanted = at * n_chars + truth[found]
    pair = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
    of_truth = np.where(pairs[pair] == wanted, pair_counts[pair], 0)
    return found, totals[at], types[at], of_truth, commonest


def _count_pairs(
    training: Ints, digits: Ints, before: int, after: int, base: int, n_chars: int, contexts: Ints
) -> tuple[Ints, Ints]:
    """How often each pair of a context and a character stands in the training text, as place of the context in the
    sorted `contexts` * n_chars + character. Other contexts are not kept: memory does not grow with the text."""
    pairs: Ints = np.empty(0, dtype=np.int64)
    counts: Ints = np.empty(0, dtype=np.int64)
    for start in range(before, len(training) - after, PLACES_AT_ONCE):
        offsets = np.arange(start, min(start + PLACES_AT_ONCE, len(training) - after))
        numbers = _contexts(digits[None], np.zeros_like(offsets), offsets, before, after, base)
        at = np.minimum(np.searchsorted(contexts, numbers), len(contexts) - 1)
        kept = contexts[at] == numbers
        found, found_counts = np.unique(at[kept] * n_chars + training[offsets[kept]], return_counts=True)
        merged, inverse = np.unique(np.concatenate([pairs, found]), return_inverse=True)
        total = np.zeros(len(merged), dtype=np.int64)
        np.add.at(total, inverse, np.concatenate([counts, found_counts]))
        pairs, counts = merged, total
    return pairs, counts
