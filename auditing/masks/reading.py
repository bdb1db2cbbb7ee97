"""Finds out what a target's labels and ids mean from what it does, before anything is counted."""

from dataclasses import dataclass, replace

import numpy as np

from auditing.masks.draws import Draws
from auditing.masks.tokens import TokenIds

NO_LABEL = -100  # PyTorch's cross-entropy ignores it by default
EVERYWHERE = 0.9  # the share of ordinary positions whose label is the original, above which labels are everywhere


@dataclass(frozen=True)
class Reading:
    """The conventions of a target's draws: its ignored label, its mask id, and a shift of its labels."""

    tokens: TokenIds
    mask: int | None  # the id that most changed positions have
    ignored: int | None  # None: every position has a label
    by_changes: bool  # labels do not say what is selected
    shift: int  # the labels are so many positions to the right of their characters

    def of(self, draws: Draws) -> Draws:
        """The same draws, read in this way."""
        return replace(draws, tokens=self.tokens, mask=self.mask, ignored=self.ignored, by_changes=self.by_changes)


def read(draws: Draws, tokens: TokenIds) -> Reading:
    """The reading of some draws of the main text."""
    ignored = ignored_label(draws)
    changed = draws.changed & draws.eligible
    mask = used_mask(draws, changed)
    if mask is not None and tokens.mask is None:
        tokens = tokens.with_special([], mask)
    shift = shift_of(draws, changed, ignored) if ignored is not None else 0
    return Reading(tokens, mask, ignored, ignored is None or shift != 0, shift)


def ignored_label(draws: Draws) -> int | None:
    """The most frequent label of unchanged ordinary positions, unless labels are the originals there."""
    where = ~draws.changed & draws.eligible
    labels, originals = draws.labels[where], draws.originals[where]
    if not len(labels) or (labels == originals).mean() > EVERYWHERE:
        return None
    values, counts = np.unique(labels, return_counts=True)
    return int(values[counts.argmax()])


def used_mask(draws: Draws, changed: np.ndarray) -> int | None:
    """The id of more than half of the changed positions, or the stated one if there is none."""
    ids, counts = np.unique(draws.inputs[changed], return_counts=True)
    if len(ids) and counts.max() > changed.sum() / 2:
        return int(ids[counts.argmax()])
    return draws.tokens.mask


def shift_of(draws: Draws, changed: np.ndarray, ignored: int) -> int:
    """The offset between labels and their positions: of labelled from changed positions, or of labels from originals.

    It is 0 if they agree, or if no offset makes them agree.
    """
    labelled = draws.labels != ignored
    if not labelled.any() or not changed.any():
        return 0
    fits = {0: fit(draws, changed, labelled, 0)}
    if min(fits[0]) > 0.5:
        return 0
    for shift in (-1, 1, -2, 2):
        fits[shift] = fit(draws, changed, labelled, shift)
    for which in (0, 1):
        best = max(fits, key=lambda shift: fits[shift][which])
        if best and fits[best][which] > 0.8 and fits[0][which] < 0.5:
            return best
    return 0


def fit(draws: Draws, changed: np.ndarray, labelled: np.ndarray, shift: int) -> tuple[float, float]:
    """With labels moved back by `shift`: the share of changed positions that have one, and the share of labels that
    are the original there."""
    inside = slice(4, -4)
    moved = np.roll(labelled, -shift, axis=2)[..., inside]
    values = np.roll(draws.labels, -shift, axis=2)[..., inside]
    right = values == draws.originals[..., inside]
    has_label = float(moved[changed[..., inside]].mean()) if changed[..., inside].any() else 0.0
    return has_label, float(right[moved].mean()) if moved.any() else 0.0
