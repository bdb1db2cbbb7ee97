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
from auditing.statistics import Array

CLASSES = 64  # at most, of ids and columns
# The share of ordinary positions whose label is the original, above which labels are everywhere.
EVERYWHERE = 0.9
# The columns of the table, and their values where a call has fewer rows or columns than others;
# None: padding.
FILLS: dict[str, Any] = dict.fromkeys(("originals", "inputs", "labels"))
FILLS |= {"real": False, "source": -2, "skipped": False, "words": -1, "attention": 0}
# positions for which a shift of two moves no value around the end
MARGIN = slice(4, -4)


@dataclass(frozen=True)
class Table:
    """Columns of the table, arrays `[n_calls, rows, width]`. Calls are the independent units."""

    originals: Array  # int64 ids
    inputs: Array
    labels: Array
    real: Array  # bool: not padding
    source: Array  # the place in the text, -1 for added tokens, -2 where a call has no position
    tokens: TokenIds
    skipped: Array  # bool: a token of the text is missing before this one
    words: Array | None = None
    attention: Array | None = None
    # the id that the target uses as [MASK]: that of most changed positions
    mask: int | None = None
    # the label of unselected positions; None: all have other labels
    ignored: int | None = None
    shift: int = 0  # the labels are so many positions to the right of their characters

    @cached_property
    def eligible(self) -> Array:
        """Ordinary tokens of the text, which may be selected."""
        return np.isin(self.originals, self.tokens.ordinary) & self.real

    @property
    def is_output(self) -> Array:
        """Where the call returned a position: a table is as large as its largest call."""
        return self.source > -2

    @cached_property
    def changed(self) -> Array:
        return self.inputs != self.originals

    @cached_property
    def labelled(self) -> Array:
        """Positions with another label than the ignored one."""
        if self.ignored is None:
            return self.is_output
        return self.is_output & (self.labels != self.ignored)

    @cached_property
    def selected(self) -> Array:
        """The ordinary tokens that were selected, by their labels, or by the changes if labels are
        everywhere or shifted."""
        by_changes = self.ignored is None or self.shift
        return self.eligible & (self.changed if by_changes else self.labelled)

    @cached_property
    def masked(self) -> Array:
        return self.selected & self.changed & (self.inputs == self.mask)

    @cached_property
    def randomized(self) -> Array:
        return self.selected & self.changed & (self.inputs != self.mask)

    @cached_property
    def kept(self) -> Array:
        return self.selected & ~self.changed

    def per_window(self, where: Array) -> Array:
        """The number of positions that are True in each window that has ordinary tokens; 1-D."""
        return where.sum(axis=2)[self.eligible.any(2)]

    @cached_property
    def ranks(self) -> Array:
        """The number of each original among the ordinary ids."""
        ordinary = self.tokens.ordinary
        return np.searchsorted(ordinary, self.originals).clip(max=len(ordinary) - 1)

    @cached_property
    def ids(self) -> Array:
        """Classes of originals: each id, or as many neighbors as leave 64 classes; special tokens
        are the last one."""
        n = len(self.tokens.ordinary)
        return np.where(self.eligible, self.ranks * min(n, CLASSES) // n, CLASSES)

    @cached_property
    def recurring(self) -> Array:
        """1 where the window has the same token elsewhere, 0 where it has not."""
        order = self.originals.argsort(2)
        in_order = np.take_along_axis(self.originals, order, 2)
        equals_next = (in_order[..., 1:] == in_order[..., :-1]).astype(int)
        same = np.pad(equals_next, ((0, 0), (0, 0), (1, 1)))
        return np.take_along_axis(same[..., 1:] | same[..., :-1], order.argsort(2), 2)

    @property
    def occurrences(self) -> Array:
        """How often the token is in its call, in quarters of the mean over the call's tokens, 8 at
        most."""
        counts = np.zeros(self.originals.shape, dtype=int)
        for one, ids, eligible in zip(
            counts, self.originals, self.eligible, strict=True
        ):
            _, inverse, sizes = np.unique(
                ids[eligible], return_inverse=True, return_counts=True
            )
            one[eligible] = sizes[inverse]
        n_eligible = self.eligible.sum((1, 2), keepdims=True)
        means = counts.sum((1, 2), keepdims=True) / np.maximum(1, n_eligible)
        return (4 * counts / np.maximum(1, means)).clip(0, 8).astype(int)

    def part(self, calls: slice, one_window_each: bool = False) -> Self:
        """Some of the calls; or their windows, each as a unit of its own."""
        _, n_rows, width = self.originals.shape
        shape = (-1, 1 if one_window_each else n_rows, width)
        parts: dict[str, Any] = {}
        for name in FILLS:
            column = getattr(self, name)
            if column is not None:
                parts[name] = column[calls].reshape(shape)
        return replace(self, **parts)

    def read(self) -> Self:
        """The same table with the target's conventions, found from what it does.

        Raises TargetError if labels mark replaced tokens instead of naming originals.
        """
        self._refuse_marks()
        changed = self.changed & self.eligible
        used = most_frequent(self.inputs[changed], 0.5)
        mask = self.tokens.mask if used is None else used
        tokens = (
            self.tokens if self.tokens.mask is not None else self.tokens.with_mask(mask)
        )
        unchanged = ~self.changed & self.eligible
        labels = self.labels[unchanged]
        if (labels == self.originals[unchanged]).mean() > EVERYWHERE:
            return replace(self, tokens=tokens, mask=mask, ignored=None, shift=0)
        ignored = most_frequent(labels)
        shift = 0 if ignored is None else shift_of(self, changed, ignored)
        return replace(self, tokens=tokens, mask=mask, ignored=ignored, shift=shift)

    def _refuse_marks(self) -> None:
        labels = self.labels[self.eligible]
        changed = self.changed[self.eligible]
        are_marks = (
            self.tokens.n_tokens > 2 and changed.any() and np.isin(labels, (0, 1)).all()
        )
        if are_marks and (labels == changed).mean() > 0.99:
            raise TargetError(
                "labels are 1 where a token is replaced and 0 elsewhere, as for ELECTRA's"
                " discriminator: audit the masks of its generator instead"
            )


def shift_of(table: Table, changed: Array, ignored: int) -> int:
    """The offset between labels and their positions: of labelled from changed positions, or of
    labels from originals. It is 0 if they agree, or if no offset makes them agree."""
    labelled = table.labels != ignored
    if not labelled.any() or not changed.any():
        return 0
    where = changed[..., MARGIN]

    def fit(shift: int) -> tuple[float, float]:
        """With labels moved back: the share of changed positions that have one, and of labels that
        are the original."""
        moved = (np.roll(labelled, -shift, axis=2) & table.eligible)[..., MARGIN]
        is_right = (np.roll(table.labels, -shift, axis=2) == table.originals)[
            ..., MARGIN
        ]
        return mean_of(moved[where]), mean_of(is_right[moved])

    fits = {0: fit(0)}
    if min(fits[0]) > 0.5:
        return 0
    for shift in (-1, 1, -2, 2):
        fits[shift] = fit(shift)

    for which in (0, 1):
        best = max(fits, key=lambda shift: fits[shift][which])
        if best and fits[best][which] > 0.8 and fits[0][which] < 0.5:
            return best

    return 0


def mean_of(values: Array) -> float:
    """The mean; 0 of no values."""
    return float(values.mean()) if values.size else 0.0


def eighths_of(where: Array) -> Array:
    """In which eighth of a window's positions that are True each one is, 0 elsewhere. Windows of
    any length compare."""
    order = where.cumsum(2) - 1
    count = where.sum(2, keepdims=True)
    return np.where(where, 8 * order // np.maximum(1, count), 0)


def shifted(array: Array, distance: int, fill: Any) -> Array:
    """The values `distance` positions to the left; `fill` where there are none."""
    moved = np.roll(array, distance, axis=-1)
    if distance > 0:
        moved[..., :distance] = fill
    else:
        moved[..., distance:] = fill
    return moved


def spanned(where: Array) -> Array:
    """True from the first to the last True position of each row: padding inside of a text is a part
    of it."""
    from_left = np.logical_or.accumulate(where, axis=-1)
    from_right = np.logical_or.accumulate(where[..., ::-1], axis=-1)
    return from_left & from_right[..., ::-1]


def stacked(calls: Sequence[dict[str, Any]], tokens: TokenIds) -> Table:
    """One table of calls, whose columns `[rows, width]` may differ in shape."""
    shape = np.max([call["inputs"].shape for call in calls], axis=0)
    columns: dict[str, Any] = {}

    for name, fill in FILLS.items():
        parts: list[Any] = [call.get(name) for call in calls]
        if any(part is None for part in parts):
            continue
        if fill is None:
            fill = tokens.padding or 0
        columns[name] = np.full((len(calls), *shape), fill, dtype=parts[0].dtype)
        for one, part in zip(columns[name], parts, strict=True):
            one[: part.shape[0], : part.shape[1]] = part

    return Table(**columns, tokens=tokens, mask=tokens.mask, ignored=tokens.ignored)


def aligned(
    text: Text, rows: Array, answer: Masked, tokens: TokenIds, gram: int | None = None
) -> dict[str, Array | None]:
    """The columns of one call, `[rows, width]` of the output. `gram` is the number of tokens that
    tell a place."""
    ids = text.ids[rows].ravel()
    real = text.real[rows].ravel()
    width = text.ids.shape[1]
    padding = tokens.padding
    known = tokens.known(answer.inputs, answer.labels)
    added = [
        id for id in tokens.special if id not in (tokens.mask, tokens.unknown, padding)
    ]
    places = sources(text.ids[rows], text.real[rows], answer.inputs, known, gram, added)
    if padding is not None:
        # A text that was cut ends in padding; an added token may take the place of padding.
        is_cut = (known == padding) & real[places]
        is_added = np.isin(known, added) & ~real[places]
        places = np.where(is_cut | is_added, -1, places)
        if not (ids == tokens.mask).any():  # a mask without a label, where no text was
            known = np.where(known == tokens.mask, padding, known)

    is_text = places >= 0
    place = np.where(is_text, places, 0)
    before = shifted(places, 1, -1)
    is_skip = (before >= 0) & (places - before == 2) & (place % width > 1)
    # One gap before tokens without a place is a replacement.
    is_skip &= (shifted(places, -1, -1) >= 0) & (shifted(places, -2, -1) >= 0)
    is_special = (known != padding) & np.isin(known, tokens.special)
    words = None
    if text.words is not None:
        words = np.where(is_text, text.words[rows].ravel()[place], -1)
    return {
        "originals": np.where(is_text, ids[place], known),
        "inputs": answer.inputs,
        "labels": answer.labels,
        "real": np.where(is_text, real[place], is_special),
        "source": np.where(is_text, rows[place // width] * width + place % width, -1),
        "skipped": is_skip & np.isin(ids[place - 1], tokens.ordinary),
        "words": words,
        "attention": answer.columns.get("attention_mask"),
    }
