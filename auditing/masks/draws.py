"""The inputs and labels that a target made of many windows, and the counts that the checks need."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from auditing.masks.target import Masked
from auditing.masks.texts import Text
from auditing.masks.tokens import TokenIds


@dataclass(frozen=True)
class Draws:
    """Windows of equal width, grouped by independent units: the calls, as a rule. Arrays `[n_units, batch, width]`."""

    originals: np.ndarray  # int64 ids
    inputs: np.ndarray
    labels: np.ndarray
    real: np.ndarray  # bool: not padding
    tokens: TokenIds
    mask: int | None  # the id that the target uses as [MASK]
    ignored: int | None  # the label of positions that were not selected; None: every position has a label
    by_changes: bool = False  # labels do not say what is selected, so changed positions count as selected
    words: np.ndarray | None = None
    attention: np.ndarray | None = None

    @cached_property
    def eligible(self) -> np.ndarray:
        """Ordinary tokens, which may be selected."""
        is_ordinary = np.zeros(max(self.tokens.n_tokens, int(self.originals.max()) + 1), dtype=bool)
        is_ordinary[self.tokens.ordinary] = True
        return is_ordinary[self.originals] & self.real

    @cached_property
    def changed(self) -> np.ndarray:
        return self.inputs != self.originals

    @cached_property
    def labelled(self) -> np.ndarray:
        return self.labels != self.ignored if self.ignored is not None else np.ones_like(self.real)

    @cached_property
    def selected(self) -> np.ndarray:
        """The ordinary tokens that were selected."""
        return (self.changed if self.by_changes else self.labelled) & self.eligible

    @cached_property
    def masked(self) -> np.ndarray:
        return self.selected & self.changed & (self.inputs == self.mask)

    @cached_property
    def randomized(self) -> np.ndarray:
        return self.selected & self.changed & (self.inputs != self.mask)

    @cached_property
    def kept(self) -> np.ndarray:
        return self.selected & ~self.changed

    @property
    def n_positions(self) -> int:
        return self.originals.size

    def per_unit(self, where: np.ndarray) -> np.ndarray:
        """The number of positions that are True in each unit, `[n_units]`."""
        return where.sum(axis=(1, 2))

    def per_window(self, where: np.ndarray) -> np.ndarray:
        """The number of positions that are True in each window, `[n_units * batch]`."""
        return where.sum(axis=2).ravel()

    def part(self, units: slice, one_window_each: bool = False) -> Self:
        """Some of the units; or their windows, each as a unit of its own."""

        def cut(array: np.ndarray | None) -> np.ndarray | None:
            if array is None:
                return None
            return array[units].reshape(-1, 1, array.shape[2]) if one_window_each else array[units]

        names = ("originals", "inputs", "labels", "real", "words", "attention")
        parts: dict[str, Any] = {name: cut(getattr(self, name)) for name in names}
        return replace(self, **parts)


def collect(text: Text, rows: Sequence[np.ndarray], answers: Sequence[Masked], tokens: TokenIds, left: bool) -> Draws:
    """Draws from the answers to calls with some rows of a text. A batch may be wider than the text, by padding."""
    width = max(answer.inputs.shape[1] for answer in answers)
    padding = tokens.padding if tokens.padding is not None else 0

    def stack(arrays: list[np.ndarray], fill: int) -> np.ndarray:
        gaps = [width - array.shape[1] for array in arrays]
        sides = [((0, 0), (gap, 0) if left else (0, gap)) for gap in gaps]
        return np.stack([np.pad(array, side, constant_values=fill) for array, side in zip(arrays, sides, strict=True)])

    attentions = [answer.attention for answer in answers if answer.attention is not None]
    has_attention = len(attentions) == len(answers) and all(
        attention.shape == answer.inputs.shape for attention, answer in zip(attentions, answers, strict=True)
    )
    return Draws(
        stack([text.ids[some] for some in rows], padding),
        stack([answer.inputs for answer in answers], padding),
        stack([answer.labels for answer in answers], padding),
        stack([text.real[some] for some in rows], False),
        tokens,
        tokens.mask,
        tokens.ignored,
        words=None if text.words is None else stack([text.words[some] for some in rows], -1),
        attention=stack(attentions, 0) if has_attention else None,
    )
