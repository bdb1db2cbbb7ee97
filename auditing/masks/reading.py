"""Finds out what a target's labels and ids mean from what it does, before anything is counted."""

from dataclasses import dataclass, replace

import numpy as np

from auditing.errors import TargetError
from auditing.masks.table import Table
from auditing.masks.tokens import TokenIds

EVERYWHERE = 0.9  # the share of ordinary positions whose label is the original, above which labels are everywhere


@dataclass(frozen=True)
class Reading:
    """The conventions of a target: its ignored label, its mask id, and a shift of its labels."""

    tokens: TokenIds
    mask: int | None  # the id that most changed positions have
    ignored: int | None  # None: every position has a label
    shift: int  # the labels are so many positions to the right of their characters

    def of(self, table: Table) -> Table:
        """The same table, read in this way. Labels that do not say what is selected leave it to the changes."""
        by_changes = self.ignored is None or self.shift != 0
        return replace(table, tokens=self.tokens, mask=self.mask, ignored=self.ignored, by_changes=by_changes)


def read(table: Table, tokens: TokenIds) -> Reading:
    """The reading of the main text. Raises TargetError if labels mark replaced tokens instead of naming originals."""
    changed, unchanged = table.changed & table.eligible, ~table.changed & table.eligible
    labels = table.labels[unchanged]
    values, counts = np.unique(labels, return_counts=True)
    ignored = int(values[counts.argmax()]) if len(labels) else None
    if (labels == table.originals[unchanged]).mean() > EVERYWHERE:
        ignored = None
    marks = np.isin(table.labels, (0, 1)).all() and changed.any() and tokens.n_tokens > 2
    if marks and (table.labels == table.changed)[table.eligible].mean() > 0.99:
        raise TargetError("labels are 1 where a token is replaced and 0 elsewhere, as for ELECTRA's discriminator: audit"
                          " the masks of its generator instead")  # fmt: skip
    ids, counts = np.unique(table.inputs[changed], return_counts=True)
    mask = int(ids[counts.argmax()]) if len(ids) and counts.max() > changed.sum() / 2 else tokens.mask
    if mask is not None and tokens.mask is None:
        tokens = tokens.with_special([], mask)
    return Reading(tokens, mask, ignored, shift_of(table, changed, ignored) if ignored is not None else 0)


def shift_of(table: Table, changed: np.ndarray, ignored: int) -> int:
    """The offset between labels and their positions: of labelled from changed positions, or of labels from originals.

    It is 0 if they agree, or if no offset makes them agree.
    """
    labelled = table.labels != ignored
    if not labelled.any() or not changed.any():
        return 0
    inside = slice(4, -4)

    def fit(shift: int) -> tuple[float, float]:
        """With labels moved back: the share of changed positions that have one, and of labels that are the original."""
        moved = np.roll(labelled, -shift, axis=2)[..., inside]
        right = np.roll(table.labels, -shift, axis=2)[..., inside] == table.originals[..., inside]
        where = changed[..., inside]
        return float(moved[where].mean()) if where.any() else 0.0, float(right[moved].mean()) if moved.any() else 0.0

    fits = {shift: fit(shift) for shift in ((0,) if min(fit(0)) > 0.5 else (0, -1, 1, -2, 2))}
    for which in (0, 1):
        best = max(fits, key=lambda shift: fits[shift][which])
        if best and fits[best][which] > 0.8 and fits[0][which] < 0.5:
            return best
    return 0
