"""The table of an audit: a row for each position of each call, with its outcomes and its circumstances."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from auditing.masks.alignment import sources
from auditing.masks.target import Masked
from auditing.masks.texts import Text
from auditing.masks.tokens import TokenIds

CLASSES = 64  # at most, of ids and columns


@dataclass(frozen=True)
class Table:
    """Columns of the table, arrays `[n_calls, rows, width]`. Calls are the independent units."""

    originals: np.ndarray  # int64 ids
    inputs: np.ndarray
    labels: np.ndarray
    real: np.ndarray  # bool: not padding
    source: np.ndarray  # the place in the text, -1 for added tokens
    tokens: TokenIds
    mask: int | None  # the id that the target uses as [MASK]
    ignored: int | None  # the label of positions that were not selected; None: every position has a label
    by_changes: bool = False  # labels do not say what is selected, so changed positions count as selected
    words: np.ndarray | None = None
    attention: np.ndarray | None = None

    @cached_property
    def eligible(self) -> np.ndarray:
        """Ordinary tokens of the text, which may be selected."""
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

    def per_unit(self, where: np.ndarray) -> np.ndarray:
        """The number of positions that are True in each call, `[n_calls]`."""
        return where.sum(axis=(1, 2))

    def per_window(self, where: np.ndarray) -> np.ndarray:
        """The number of positions that are True in each window that has ordinary tokens; 1-D."""
        return where.sum(axis=2)[self.eligible.any(2)]

    @cached_property
    def ranks(self) -> np.ndarray:
        """The number of each original among the ordinary ids."""
        return np.searchsorted(self.tokens.ordinary, self.originals).clip(max=len(self.tokens.ordinary) - 1)

    @cached_property
    def ids(self) -> np.ndarray:
        """Classes of originals: each id, or as many neighbors as leave 64 classes; special tokens are the last one."""
        n = len(self.tokens.ordinary)
        known = np.isin(self.originals, self.tokens.ordinary) & self.real
        return np.where(known, self.ranks * min(n, CLASSES) // n, CLASSES)

    @cached_property
    def columns(self) -> np.ndarray:
        """Classes of positions from the left, `[1, 1, width]`."""
        width = self.originals.shape[2]
        return (np.arange(width) * min(width, 2 * CLASSES) // width)[None, None]

    @cached_property
    def eighths(self) -> np.ndarray:
        """The eighth of its window's ordinary tokens in which each position is, so windows of all lengths compare."""
        return eighths_of(self.eligible)

    def part(self, units: slice, one_window_each: bool = False) -> Self:
        """Some of the calls; or their windows, each as a unit of its own."""

        def cut(array: np.ndarray) -> np.ndarray:
            return array[units].reshape(-1, 1, array.shape[2]) if one_window_each else array[units]

        names = [name for name, value in vars(self).items() if isinstance(value, np.ndarray) and name in FIELDS]
        parts: dict[str, Any] = {name: cut(getattr(self, name)) for name in names}
        return replace(self, **parts)


FIELDS = ("originals", "inputs", "labels", "real", "source", "words", "attention")


def eighths_of(where: np.ndarray) -> np.ndarray:
    """In which eighth of a window's positions that are True each one is; 0 elsewhere."""
    order, count = where.cumsum(2) - 1, where.sum(2, keepdims=True)
    return np.where(where, 8 * order // np.maximum(1, count), 0)


def shifted(array: np.ndarray, step: int, fill: Any) -> np.ndarray:
    """The values `step` positions to the left; `fill` where there are none."""
    moved = np.full_like(array, fill)
    if step > 0:
        moved[..., step:] = array[..., :-step]
    else:
        moved[..., :step] = array[..., -step:]
    return moved


def collect(text: Text, rows: Sequence[np.ndarray], answers: Sequence[Masked], tokens: TokenIds) -> Table:
    """The table of calls with some rows of a text. Each position's original is found by the content around it."""
    calls = [_aligned(text, some, answer, tokens) for some, answer in zip(rows, answers, strict=True)]
    height, width = (max(call["inputs"].shape[axis] for call in calls) for axis in (0, 1))
    padding = tokens.padding if tokens.padding is not None else 0
    fills = {"real": False, "source": -1, "words": -1, "attention": 0}

    def stack(name: str) -> np.ndarray | None:
        if any(call[name] is None for call in calls):
            return None
        missing = [(height - call[name].shape[0], width - call[name].shape[1]) for call in calls]
        return np.stack([
            np.pad(call[name], ((0, down), (0, right)), constant_values=fills.get(name, padding))
            for call, (down, right) in zip(calls, missing, strict=True)
        ])  # fmt: skip

    columns: dict[str, Any] = {name: stack(name) for name in FIELDS}
    return Table(**columns, tokens=tokens, mask=tokens.mask, ignored=tokens.ignored)


def _aligned(text: Text, rows: np.ndarray, answer: Masked, tokens: TokenIds) -> dict[str, np.ndarray | None]:
    """The columns of one call, `[rows, width]` of the output."""
    ids, real = text.ids[rows], text.real[rows]
    is_id = (answer.labels >= 0) & (answer.labels < tokens.n_tokens)
    known = np.where(is_id & (answer.labels != tokens.padding), answer.labels, answer.inputs)
    special = np.array([id for id in tokens.special if id != tokens.mask])
    found = sources(ids, real, answer.inputs, known, special)
    place = np.where(found >= 0, found, 0)
    if tokens.padding is not None:
        known = np.where(known == tokens.mask, tokens.padding, known)  # a mask without a label, where no text was
    added = np.where(found >= 0, ids.ravel()[place], known)
    is_real = np.where(found >= 0, real.ravel()[place], (known != tokens.padding) & np.isin(known, tokens.special))
    words = None if text.words is None else np.where(found >= 0, text.words[rows].ravel()[place], -1)
    attention = answer.extras.get("attention_mask")
    return {
        "originals": added, "inputs": answer.inputs, "labels": answer.labels, "real": is_real,
        "source": np.where(found >= 0, rows[place // ids.shape[1]] * ids.shape[1] + place % ids.shape[1], -1),
        "words": words, "attention": attention,
    }  # fmt: skip
