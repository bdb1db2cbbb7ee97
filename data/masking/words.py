"""The words of a text as arrays: where they are, which are the same, and units made of them."""

import re
from collections.abc import Collection, Iterable
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch

from data.masking.segmenters import CorpusUnits

Ints = npt.NDArray[np.int64]
WORD = re.compile(r"\w+(?:['’]\w+)*")

# Closed-class words of English, as Shakespeare has them too: articles, pronouns, prepositions, conjunctions,
# auxiliaries.
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


class Words:
    """All words of a text, in order."""

    def __init__(self, text: str):
        self.text = text
        matches = list(WORD.finditer(text))
        self.tokens = [match[0] for match in matches]
        self.begins = np.array([match.start() for match in matches], dtype=np.int64)
        self.ends = np.array([match.end() for match in matches], dtype=np.int64)

    @cached_property
    def vocabulary(self) -> list[str]:
        """The different words, capitals aside."""
        return sorted({token.lower() for token in self.tokens})

    @cached_property
    def types(self) -> Ints:
        """Which of `vocabulary` each word is, `[n_words]`."""
        number = {word: i for i, word in enumerate(self.vocabulary)}
        return np.array([number[token.lower()] for token in self.tokens], dtype=np.int64)

    def counts(self) -> npt.NDArray[np.float64]:
        """How often each word stands in the text, `[n_words]`."""
        return np.bincount(self.types, minlength=1)[self.types].astype(np.float64)

    def character_counts(self) -> npt.NDArray[np.float64]:
        """How often each character's kind stands in the text, `[n_chars]`."""
        codes = np.frombuffer(self.text.encode("utf-32-le"), dtype=np.uint32)
        _, kind, counts = np.unique(codes, return_inverse=True, return_counts=True)
        return counts[kind].astype(np.float64)

    def sums(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The sum over each word of a value a character, `[n_words]`."""
        cumulative = np.concatenate([[0.0], values.cumsum()])
        return cumulative[self.ends] - cumulative[self.begins]

    def runs(self, chosen: npt.NDArray[np.bool_], longest: int) -> Ints:
        """Numbers of runs of neighbouring chosen words with nothing but one space between them, `[n_words]`."""
        begins = np.ones(len(self.tokens), dtype=bool)
        adjacent = self.begins[1:] == self.ends[:-1] + 1
        spaced = np.array([self.text[end] == " " for end in self.ends[:-1]], dtype=bool)
        begins[1:] = ~(chosen[1:] & chosen[:-1] & adjacent & spaced)
        start = np.maximum.accumulate(np.where(begins, np.arange(len(begins)), 0))
        begins |= (np.arange(len(begins)) - start) % longest == 0
        return begins.cumsum()

    def grams(self, joined: Collection[tuple[str, ...]]) -> Ints:
        """Numbers of the n-grams that the text is cut into, longest first from left to right, `[n_words]`."""
        longest = max(map(len, joined), default=1)
        lower = [token.lower() for token in self.tokens]
        numbers = np.arange(len(lower))
        i = 0
        while i < len(lower):
            n = next((n for n in range(longest, 1, -1) if tuple(lower[i : i + n]) in joined), 1)
            numbers[i : i + n] = i
            i += n
        return numbers

    def units(
        self,
        weights: npt.NDArray[np.float64] | None = None,
        *,
        between: npt.NDArray[np.float64] | None = None,
        joined: Ints | Collection[tuple[str, ...]] | None = None,
        extents: Iterable[tuple[int, int]] = (),
        extent_weight: float = 1.0,
        spaces_join: bool = False,
    ) -> CorpusUnits:
        """Units of whole words; every character between words is one of its own.

        `weights` `[n_words]` are the words', `between` `[n_chars]` those of the characters between words; 1 without
        them. `joined` makes neighbouring words one unit, with what
        stands between them: numbers a word, or n-grams; its weight is the mean of theirs. `extents` are further wholes,
        with a weight of their own. `spaces_join` gives what follows a word to its unit, so that nothing is between.
        """
        n = len(self.text)
        unit = np.zeros(n + 1, dtype=bool)  # where a unit begins
        unit[:n] = True
        weight_at = np.ones(n + 1) if between is None else np.append(between, 1.0)
        numbers = np.arange(len(self.tokens))
        if joined is not None:
            numbers = joined if isinstance(joined, np.ndarray) else self.grams(joined)
        if len(self.tokens):
            firsts = np.flatnonzero(np.concatenate([[True], numbers[1:] != numbers[:-1]]))
            lasts = np.concatenate([firsts[1:], [len(numbers)]]) - 1
            begins, ends = self.begins[firsts], self.ends[lasts]
            if spaces_join:
                ends = np.concatenate([begins[1:], [n]])
            word_weights = np.ones(len(self.tokens)) if weights is None else weights
            means = np.add.reduceat(word_weights, firsts) / (lasts - firsts + 1)
            _join(unit, weight_at, begins, ends, means)
        extents = np.array(list(extents), dtype=np.int64).reshape(-1, 2)
        if len(extents):
            _join(unit, weight_at, extents[:, 0], extents[:, 1], np.full(len(extents), extent_weight))
        begins_at = np.flatnonzero(unit[:n])
        unit_of = np.cumsum(unit[:n]) - 1
        return CorpusUnits(
            torch.from_numpy(unit_of.astype(np.int32)), torch.from_numpy(weight_at[begins_at].astype(np.float32))
        )


def _join(
    unit: npt.NDArray[np.bool_], weights: npt.NDArray[np.float64], begins: Ints, ends: Ints, values: npt.NDArray
) -> None:
    """Make each [begin, end) one unit, with a weight: a unit begins at each begin and each end, and not between."""
    inside = np.zeros(len(unit), dtype=np.int64)
    np.add.at(inside, begins + 1, 1)
    np.add.at(inside, ends, -1)
    unit[inside.cumsum() > 0] = False
    unit[begins] = True
    unit[ends] = True
    weights[begins] = values
