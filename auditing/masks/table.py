"""The table of an audit: a row for each position of each call, with its outcomes and its
circumstances."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from auditing.errors import TargetError
from auditing.masks.alignment import sources
from auditing.masks.texts import Masked, Text
from auditing.masks.tokens import TokenIds, most_frequent

CLASSES = 64  # at most, of ids and columns
# the share of ordinary positions whose label is the original, above which labels are everywhere
EVERYWHERE = 0.9
COLUMNS = ("originals", "inputs", "labels", "real", "source", "skipped", "words", "attention")


@dataclass(frozen=True)
class Table:
    """Columns of the table, arrays `[n_calls, rows, width]`. Calls are the independent units."""

    originals: np.ndarray  # int64 ids
    inputs: np.ndarray
    labels: np.ndarray
    real: np.ndarray  # bool: not padding
    source: (
        np.ndarray
    )  # the place in the text, -1 for added tokens, -2 where a call has fewer rows or columns
    tokens: TokenIds
    skipped: np.ndarray  # bool: a token of the text is missing before this one
    words: np.ndarray | None = None
    attention: np.ndarray | None = None
    mask: int | None = None  # the id that the target uses as [MASK]: that of most changed positions
    ignored: int | None = (
        None  # the label of positions that were not selected; None: every position has a label
    )
    shift: int = 0  # the labels are so many positions to the right of their characters

    @cached_property
    def eligible(self) -> np.ndarray:
        """Ordinary tokens of the text, which may be selected."""
        return np.isin(self.originals, self.tokens.ordinary) & self.real

    @property
    def is_output(self) -> np.ndarray:
        """Where the call returned a position: a table is as large as its largest call."""
        return self.source > -2

    @cached_property
    def changed(self) -> np.ndarray:
        return self.inputs != self.originals

    @cached_property
    def labelled(self) -> np.ndarray:
        return self.is_output & (True if self.ignored is None else self.labels != self.ignored)

    @cached_property
    def selected(self) -> np.ndarray:
        """The ordinary tokens that were selected. Labels that do not say so leave it to the
        changes."""
        by_changes = self.ignored is None or self.shift
        return (self.changed if by_changes else self.labelled) & self.eligible

    @cached_property
    def masked(self) -> np.ndarray:
        return self.selected & self.changed & (self.inputs == self.mask)

    @cached_property
    def randomized(self) -> np.ndarray:
        return self.selected & self.changed & (self.inputs != self.mask)

    @cached_property
    def kept(self) -> np.ndarray:
        return self.selected & ~self.changed

    def per_window(self, where: np.ndarray) -> np.ndarray:
        """The number of positions that are True in each window that has ordinary tokens; 1-D."""
        return where.sum(axis=2)[self.eligible.any(2)]

    @cached_property
    def ranks(self) -> np.ndarray:
        """The number of each original among the ordinary ids."""
        return np.searchsorted(self.tokens.ordinary, self.originals).clip(
            max=len(self.tokens.ordinary) - 1
        )

    @cached_property
    def ids(self) -> np.ndarray:
        """Classes of originals: each id, or as many neighbors as leave 64 classes; special tokens
        are the last one."""
        n = len(self.tokens.ordinary)
        return np.where(self.eligible, self.ranks * min(n, CLASSES) // n, CLASSES)

    @cached_property
    def recurring(self) -> np.ndarray:
        """1 where the window has the same token elsewhere, 0 where it has not."""
        order = self.originals.argsort(2)
        in_order = np.take_along_axis(self.originals, order, 2)
        same = np.pad(in_order[..., 1:] == in_order[..., :-1], ((0, 0), (0, 0), (1, 1))).astype(int)
        return np.take_along_axis(same[..., 1:] | same[..., :-1], order.argsort(2), 2)

    @property
    def occurrences(self) -> np.ndarray:
        """How often the token is in its call, in quarters of the mean over the call's tokens, 8 at
        most."""
        counts = np.zeros(self.originals.shape, dtype=int)
        for one, ids, eligible in zip(counts, self.originals, self.eligible, strict=True):
            _, inverse, sizes = np.unique(ids[eligible], return_inverse=True, return_counts=True)
            one[eligible] = sizes[inverse]
        means = counts.sum((1, 2), keepdims=True) / np.maximum(
            1, self.eligible.sum((1, 2), keepdims=True)
        )
        return (4 * counts / np.maximum(1, means)).clip(0, 8).astype(int)

    def part(self, calls: slice, one_window_each: bool = False) -> Self:
        """Some of the calls; or their windows, each as a unit of its own."""
        n_rows, width = self.originals.shape[1:]
        shape = (-1, 1 if one_window_each else n_rows, width)
        names = [name for name in COLUMNS if getattr(self, name) is not None]
        parts: dict[str, Any] = {name: getattr(self, name)[calls].reshape(shape) for name in names}
        return replace(self, **parts)

    def read(self) -> Self:
        """The same table with the target's conventions, found from what it does. Raises TargetError
        if labels mark replaced tokens instead of naming originals."""
        changed, unchanged, tokens = (
            self.changed & self.eligible,
            ~self.changed & self.eligible,
            self.tokens,
        )
        labels = self.labels[unchanged]
        ignored = most_frequent(labels)
        if (labels == self.originals[unchanged]).mean() > EVERYWHERE:
            ignored = None
        marks = (
            np.isin(self.labels[self.eligible], (0, 1)).all()
            and changed.any()
            and tokens.n_tokens > 2
        )
        if marks and (self.labels == self.changed)[self.eligible].mean() > 0.99:
            raise TargetError("labels are 1 where a token is replaced and 0 elsewhere, as for ELECTRA's discriminator: "
                              "audit the masks of its generator instead")  # fmt: skip
        used = most_frequent(self.inputs[changed], 0.5)
        mask = tokens.mask if used is None else used
        if tokens.mask is None:
            tokens = tokens.with_mask(mask)
        shift = 0 if ignored is None else shift_of(self, changed, ignored)
        return replace(self, tokens=tokens, mask=mask, ignored=ignored, shift=shift)


def shift_of(table: Table, changed: np.ndarray, ignored: int) -> int:
    """The offset between labels and their positions: of labelled from changed positions, or of
    labels from originals. It is 0 if they agree, or if no offset makes them agree."""
    labelled, inside = table.labels != ignored, slice(4, -4)
    if not labelled.any() or not changed.any():
        return 0

    def fit(shift: int) -> tuple[float, float]:
        """With labels moved back: the share of changed positions that have one, and of labels that
        are the original."""
        moved = (np.roll(labelled, -shift, axis=2) & table.eligible)[..., inside]
        right = np.roll(table.labels, -shift, axis=2)[..., inside] == table.originals[..., inside]
        where = changed[..., inside]
        return float(moved[where].mean()) if where.any() else 0.0, float(
            right[moved].mean()
        ) if moved.any() else 0.0

    fits = {shift: fit(shift) for shift in ((0,) if min(fit(0)) > 0.5 else (0, -1, 1, -2, 2))}
    for which in (0, 1):
        best = max(fits, key=lambda shift: fits[shift][which])
        if best and fits[best][which] > 0.8 and fits[0][which] < 0.5:
            return best
    return 0


def eighths_of(where: np.ndarray) -> np.ndarray:
    """In which eighth of a window's positions that are True each one is, 0 elsewhere. Windows of
    any length compare."""
    order, count = where.cumsum(2) - 1, where.sum(2, keepdims=True)
    return np.where(where, 8 * order // np.maximum(1, count), 0)


def shifted(array: np.ndarray, step: int, fill: Any) -> np.ndarray:
    """The values `step` positions to the left; `fill` where there are none."""
    moved = np.roll(array, step, axis=-1)
    moved[(..., slice(0, step) if step > 0 else slice(step, None))] = fill
    return moved


def spanned(where: np.ndarray) -> np.ndarray:
    """True from the first to the last True position of each row: padding inside of a text is a part
    of it."""
    from_left, from_right = (
        np.logical_or.accumulate(each, axis=-1) for each in (where, where[..., ::-1])
    )
    return from_left & from_right[..., ::-1]


def stacked(calls: Sequence[dict[str, Any]], tokens: TokenIds) -> Table:
    """One table of calls, whose columns `[rows, width]` may differ in shape."""
    height, width = (max(call["inputs"].shape[axis] for call in calls) for axis in (0, 1))
    fills = {"real": False, "source": -2, "skipped": False, "words": -1, "attention": 0}

    def stack(name: str) -> np.ndarray | None:
        if any(call.get(name) is None for call in calls):
            return None
        fill = fills.get(name, tokens.padding or 0)
        whole = np.full((len(calls), height, width), fill, dtype=calls[0][name].dtype)
        for one, call in zip(whole, calls, strict=True):
            one[tuple(slice(n) for n in call[name].shape)] = call[name]
        return whole

    columns: dict[str, Any] = {name: stack(name) for name in COLUMNS}
    return Table(**columns, tokens=tokens, mask=tokens.mask, ignored=tokens.ignored)


def aligned(
    text: Text, rows: np.ndarray, answer: Masked, tokens: TokenIds, gram: int | None = None
) -> dict[str, np.ndarray | None]:
    """The columns of one call, `[rows, width]` of the output. `gram` is the number of tokens that
    tell a place."""
    ids, real, padding = text.ids[rows], text.real[rows].ravel(), tokens.padding
    known = tokens.known(answer.inputs, answer.labels)
    added = [id for id in tokens.special if id not in (tokens.mask, tokens.unknown, padding)]
    found = sources(ids, text.real[rows], answer.inputs, known, gram, added)
    if (
        padding is not None
    ):  # a text that was cut ends in padding; a token that was added may take its place
        found = np.where(
            ((known == padding) & real[found]) | (np.isin(known, added) & ~real[found]), -1, found
        )
    place, is_text = np.where(found >= 0, found, 0), found >= 0
    before = shifted(found, 1, -1)
    skips = (before >= 0) & (found - before == 2) & (place % ids.shape[1] > 1)
    skips &= (shifted(found, -1, -1) >= 0) & (
        shifted(found, -2, -1) >= 0
    )  # one gap before unplaced tokens is a replacement
    if padding is not None and not (ids == tokens.mask).any():
        known = np.where(
            known == tokens.mask, padding, known
        )  # a mask without a label, where no text was
    return {
        "originals": np.where(is_text, ids.ravel()[place], known),
        "inputs": answer.inputs,
        "labels": answer.labels,
        "real": np.where(is_text, real[place], (known != padding) & np.isin(known, tokens.special)),
        "source": np.where(
            is_text, rows[place // ids.shape[1]] * ids.shape[1] + place % ids.shape[1], -1
        ),
        "skipped": skips & np.isin(ids.ravel()[place - 1], tokens.ordinary),
        "words": None
        if text.words is None
        else np.where(is_text, text.words[rows].ravel()[place], -1),
        "attention": answer.columns.get("attention_mask"),
    }
