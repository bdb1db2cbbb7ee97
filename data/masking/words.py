"""The words of a text as arrays: where they are, which are the same, and units made of them."""

import re
from collections.abc import Collection, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch

from data.masking.segmenters import CorpusUnits

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
WORD = re.compile(r"\w+(?:['’]\w+)*")

# Closed-class words of English, with Shakespeare's: articles, pronouns, prepositions, conjunctions, auxiliaries.
FUNCTION_WORDS = frozenset(
    WORD.findall("""
    a an the this that these those my thy his her its our your their mine thine
    i me we us you thou thee ye he him she it they them who whom whose which what
    of to in for with on at by from up about into over after upon unto against through without within
    and or but nor so yet if then than as though because while when where why how
    is am are was were be been being art wert do does did dost doth have has had hast hath
    will would shall should may might can could must wilt shalt not no nor o oh ay
    """)
)


def numbered(names: Sequence[str]) -> Ints:
    """The number of each name among the distinct names in sorted order, `[len(names)]`."""
    number = {name: i for i, name in enumerate(sorted(set(names)))}
    return np.array([number[name] for name in names], dtype=np.int64)


class Words:
    """All words of a text, in order."""

    def __init__(self, text: str):
        self.text = text
        matches = list(WORD.finditer(text))
        self.tokens = [match[0] for match in matches]
        self.lower = [token.lower() for token in self.tokens]
        self.begins = np.array([match.start() for match in matches], dtype=np.int64)
        self.ends = np.array([match.end() for match in matches], dtype=np.int64)

    @cached_property
    def types(self) -> Ints:
        """The number of each word among the distinct words in lower case, `[n_words]`."""
        return numbered(self.lower)

    def counts(self) -> Floats:
        """How often each word occurs in the text, `[n_words]`."""
        return np.bincount(self.types, minlength=1)[self.types].astype(np.float64)

    def character_counts(self) -> Floats:
        """How often each character occurs in the text, `[n_chars]`."""
        codes = np.frombuffer(self.text.encode("utf-32-le"), dtype=np.uint32)
        _, kind, counts = np.unique(codes, return_inverse=True, return_counts=True)
        return counts[kind].astype(np.float64)

    def sums(self, values: Floats) -> Floats:
        """The sum of `values` `[n_chars]` over each word, `[n_words]`."""
        cumulative = np.concatenate([[0.0], values.cumsum()])
        return cumulative[self.ends] - cumulative[self.begins]

    def runs(self, chosen: npt.NDArray[np.bool_], longest: int) -> Ints:
        """Numbers of the runs of at most `longest` chosen words with only a space between them, `[n_words]`."""
        begins = np.ones(len(self.tokens), dtype=bool)
        adjacent = self.begins[1:] == self.ends[:-1] + 1
        spaced = np.array([self.text[end] == " " for end in self.ends[:-1]], dtype=bool)
        begins[1:] = ~(chosen[1:] & chosen[:-1] & adjacent & spaced)
        start = np.maximum.accumulate(np.where(begins, np.arange(len(begins)), 0))
        begins |= (np.arange(len(begins)) - start) % longest == 0
        return begins.cumsum()

    def grams(self, joined: Collection[tuple[str, ...]]) -> Ints:
        """Numbers of the n-grams of `joined` that cover the text, longest first from left to right, `[n_words]`."""
        longest = max(map(len, joined), default=1)
        numbers = np.arange(len(self.lower))
        i = 0
        while i < len(self.lower):
            n = next((n for n in range(longest, 1, -1) if tuple(self.lower[i : i + n]) in joined), 1)
            numbers[i : i + n] = i
            i += n
        return numbers

    def units(
        self,
        weights: Floats | None = None,
        *,
        between: Floats | None = None,
        joined: Ints | None = None,
        extents: Sequence[tuple[int, int]] = (),
        extent_weight: float = 1.0,
        spaces_join: bool = False,
    ) -> CorpusUnits:
        """Units of whole words. Each character between words is a unit of its own.

        `weights` `[n_words]` belong to the words and `between` `[n_chars]` to the characters between them; the default
        is 1. Neighboring words with equal numbers in `joined` `[n_words]` become one unit, with the characters between
        them and the mean of their weights. Each of `extents`, (begin, end) offsets in rising order without overlap,
        becomes a unit of weight `extent_weight`. `spaces_join` adds the characters after a word to its unit.
        """
        n, n_words = len(self.text), len(self.tokens)
        begins_at = np.ones(n + 1, dtype=bool)  # whether a unit begins at an offset
        weight_at = np.ones(n + 1) if between is None else np.append(between, 1.0)
        if n_words:
            numbers = np.arange(n_words) if joined is None else joined
            firsts = np.flatnonzero(np.concatenate([[True], numbers[1:] != numbers[:-1]]))
            lasts = np.append(firsts[1:], n_words) - 1
            begins = self.begins[firsts]
            ends = np.append(begins[1:], n) if spaces_join else self.ends[lasts]
            word_weights = np.ones(n_words) if weights is None else weights
            _join(begins_at, weight_at, begins, ends, np.add.reduceat(word_weights, firsts) / (lasts - firsts + 1))
        if extents:
            begins, ends = np.array(extents, dtype=np.int64).T
            _join(begins_at, weight_at, begins, ends, extent_weight)
        unit_of = np.cumsum(begins_at[:n]) - 1
        weights_of = weight_at[:n][begins_at[:n]]
        return CorpusUnits(torch.from_numpy(unit_of.astype(np.int32)), torch.from_numpy(weights_of.astype(np.float32)))


def _join(begins_at: npt.NDArray[np.bool_], weights: Floats, begins: Ints, ends: Ints, values: Floats | float) -> None:
    """Make each [begin, end) one unit with a weight, in place."""
    inside = np.zeros(len(begins_at), dtype=np.int64)
    np.add.at(inside, begins + 1, 1)
    np.add.at(inside, ends, -1)
    begins_at[inside.cumsum() > 0] = False
    begins_at[begins] = True
    begins_at[ends] = True
    weights[begins] = values
