"""Which characters of a text its tokens stand for."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Alignment:
    """The tokens of a text, with the offsets that the tokenizer reports.

    Characters outside of all spans have no token. Spans of neighbors overlap if one character
    becomes several tokens.
    """

    text: str
    ids: np.ndarray  # [n_tokens]
    # [n_tokens, 2], the offsets of the first character and past the last
    spans: np.ndarray

    @cached_property
    def is_space(self) -> np.ndarray:
        """`[n_characters]`."""
        return np.fromiter(map(str.isspace, self.text), bool, len(self.text))

    @cached_property
    def ends_before(self) -> np.ndarray:
        """The end of all tokens before each one, `[n_tokens]`."""
        return np.maximum.accumulate(np.append(0, self.spans[:-1, 1]))[: len(self.ids)]

    @property
    def begins(self) -> np.ndarray:
        """The offset of the first character of each token that is not a space, or else of its
        first, `[n_tokens]`."""
        begins, ends = self.spans.T
        n = len(self.text)
        places = np.where(self.is_space, n, np.arange(n))
        next_visible = np.append(np.minimum.accumulate(places[::-1])[::-1], n)[begins]
        return np.where(next_visible < ends, next_visible, begins)

    @property
    def lengths(self) -> np.ndarray:
        """The characters that begin in each token, `[n_tokens]`, with the spaces before it that
        have no token."""
        begins, ends = self.spans.T
        n_spaces = np.append(0, self.is_space.cumsum())
        begins = np.maximum(begins, self.ends_before)
        return (
            (ends - begins).clip(min=0) + n_spaces[begins] - n_spaces[self.ends_before]
        )

    def covered(self, tokens: np.ndarray) -> np.ndarray:
        """The characters that are in some of the `tokens`, bool `[n_tokens]`: `[n_characters]`."""
        changes = np.zeros(len(self.text) + 1, np.int64)
        np.add.at(changes, self.spans[tokens, 0], 1)
        np.add.at(changes, self.spans[tokens, 1], -1)
        return changes.cumsum()[:-1] > 0

    def mean_lengths(self) -> dict[int, float]:
        """The mean length of each id in the text."""
        return means(self.ids, self.lengths)

    def after_space(self) -> dict[int, bool]:
        """Whether an id mostly begins with a space or follows one that has no token. Leaves out
        parts of characters."""
        begins, ends = self.spans.T
        ends_after = np.append(begins[1:], len(self.text))
        is_whole = (self.ends_before <= begins) & (ends <= ends_after) & (begins < ends)
        starts = np.maximum(begins - 1, self.ends_before)[is_whole]
        shares = means(self.ids[is_whole], self.is_space[starts])
        return {i: share > 0.5 for i, share in shares.items()}


def means(ids: np.ndarray, values: np.ndarray) -> dict[int, float]:
    """The mean of the values `[n_tokens]` of each id."""
    sums = np.bincount(ids, values)
    counts = np.bincount(ids)
    return {int(i): float(sums[i] / counts[i]) for i in counts.nonzero()[0]}
