"""Changes one thing in a batch at a time, and sees whether the prediction of a hidden character moves.

Some things must move it, such as the neighbors; others must not, such as its label. A loss below the floor has a source
of information that the model should not have: without it, the loss is above the floor again.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from auditing.pipelines.batch import Array, Batch
from auditing.pipelines.windows_read import Reading

Predict = Callable[[Mapping[str, Array]], Array]
"""The log-probabilities `[batch, seq_len, n_logits]` for a batch with other values for some of its tensors."""

STILL = 1e-3  # nats: a prediction that must not move may move by less, if a kernel rounds otherwise
BLOCKED = 2e-5  # nats: a prediction that must move moves by more, even before training
SAME = 0.99  # the share of hidden characters that a tensor must hold to be a copy of the text
COPIES = 0.8  # the share of windows in which the prediction follows the character at an offset
MASKING_PROB, FEW = 0.15, 0.02  # of the audit's own masks, and the share of masks that it does not repeat
FARTHEST = 4  # offset of a character that the prediction may copy


@dataclass(frozen=True)
class Effect:
    """How much one change moves log P at hidden positions, one per window."""

    name: str  # such as "its label"
    largest: float  # nats, over all windows and tokens
    share: float  # of the windows in which something moved


class Perturbation:
    """Changes to one batch, and their effect on one scored position per window, the one nearest to the middle."""

    def __init__(self, predict: Predict, batch: Batch, reading: Reading, n_ordinary: int, seed: int):
        self.predict, self.batch, self.reading, self.n_ordinary = predict, batch, reading, n_ordinary
        self.random = np.random.Generator(np.random.PCG64(seed))
        self.rows = np.flatnonzero(reading.scored.any(1))
        middle = np.abs(np.arange(reading.inputs.shape[1]) - reading.inputs.shape[1] / 2)
        self.columns = np.where(reading.scored, middle, np.inf).argmin(1)[self.rows]

    @cached_property
    def before(self) -> Array:
        """The log-probabilities without a change."""
        return self.predict({})

    def effects(self) -> list[Effect]:
        """The effect of every change, by name; `the same again` comes first."""
        again = self._moved("the same again", {}, self.rows)
        return [again, *(self._moved(name, changes, rows) for name, changes, rows in self._changes())]

    def _changes(self) -> Iterator[tuple[str, dict[str, Array], Array]]:
        """Name, changed tensors, and the windows whose prediction counts."""
        x, at = self.batch.inputs, (self.rows, self.columns)
        its_label = np.zeros(x.shape, dtype=bool)
        its_label[at] = True
        yield "its label", {"labels": self.other(self.batch.labels, its_label)}, self.rows
        others = self.reading.labelled & ~its_label
        yield "labels elsewhere", {"labels": self.other(self.batch.labels, others)}, self.rows
        for name, value in self.batch.others.items():
            if value.shape == x.shape and not np.array_equal(rolled := np.roll(value, 1, axis=0), value):
                yield name, {name: rolled}, self.rows
        half = self.random.permutation(len(x)) < len(x) // 2
        if half[self.rows].any():
            others = self.visible & ~half[:, None]
            yield "other windows", {"inputs": self.other(x, others)}, self.rows[half[self.rows]]
        places = np.arange(x.shape[1])
        target = np.zeros(len(x), dtype=np.int64)
        target[self.rows] = self.columns
        left, right = places < target[:, None], places > target[:, None]
        yield "characters on the left", {"inputs": self.other(x, self.visible & left)}, self.rows
        yield "characters on the right", {"inputs": self.other(x, self.visible & right)}, self.rows
        yield "order of the characters", {"inputs": self.shuffled(x, self.visible)}, self.rows

    @property
    def visible(self) -> Array:
        """Positions that show a character, bool `[batch, seq_len]`."""
        return (self.reading.truth >= 0) & (self.batch.inputs < self.n_ordinary)

    def other(self, values: Array, where: Array) -> Array:
        """Other ordinary ids at the positions `where` (bool), drawn uniformly."""
        changed = values.copy()
        steps = self.random.integers(1, self.n_ordinary, int(where.sum()))
        changed[where] = (np.clip(values[where], 0, self.n_ordinary - 1) + steps) % self.n_ordinary
        return changed

    def shuffled(self, values: Array, where: Array) -> Array:
        """The ids at the positions `where` in another order inside each window."""
        changed = values.copy()
        for row, here in enumerate(where):
            changed[row, here] = self.random.permutation(values[row, here])
        return changed

    def _moved(self, name: str, changes: Mapping[str, Array], rows: Array) -> Effect:
        after = self.predict(changes)
        kept = np.isin(self.rows, rows)
        at = (self.rows[kept], self.columns[kept])
        moved = np.abs(after[at] - self.before[at])[:, : self.n_ordinary].max(1)
        return Effect(name, float(moved.max()), float((moved > STILL).mean()))

    def copied_offset(self) -> tuple[int, float]:
        """The offset whose character the prediction follows most often when it changes, and in which share of windows.

        A model copies the character at another offset if its labels are shifted, or if the hidden character has moved
        there. Offset 0 is the position itself.
        """
        shares = {}
        for offset in range(-FARTHEST, FARTHEST + 1):
            columns = self.columns + offset
            inside = (columns >= 0) & (columns < self.batch.inputs.shape[1])
            rows, columns = self.rows[inside], columns[inside]
            text = self.reading.truth[rows, columns] >= 0
            rows, columns, targets = rows[text], columns[text], self.columns[inside][text]
            if len(rows) == 0:
                continue
            shown = self.random.integers(0, self.n_ordinary, len(rows))
            inputs = self.batch.inputs.copy()
            inputs[rows, columns] = shown
            predicted = self.predict({"inputs": inputs})[rows, targets].argmax(1)
            shares[offset] = float((predicted == shown).mean())
        best = max(shares, key=lambda offset: shares[offset])
        return best, shares[best]

    def without(self) -> Iterator[tuple[str, dict[str, Array]]]:
        """Each possible source of a leak with the changes that remove it from the batch."""
        yield "labels", {"labels": self.other(self.batch.labels, self.reading.labelled)}
        for name, value in self.batch.others.items():
            if value.shape == self.batch.inputs.shape:
                yield name, {name: np.roll(value, 1, axis=0)}

    def copies_of_text(self) -> list[str]:
        """The tensors, besides the labels, that hold the hidden characters, perhaps as other numbers."""
        hidden = self.reading.scored
        found = []
        for name, value in self.batch.others.items():
            if value.shape == hidden.shape and hidden.any():
                _, counts = np.unique(value[hidden] - self.reading.truth[hidden], return_counts=True)
                if counts.max() >= SAME * hidden.sum():
                    found.append(name)
        return found


def draw_masks(reading: Reading, mask: int, seed: int) -> tuple[Array, Array, Reading]:
    """Inputs, labels and their reading for the same text with masks that are independent of it.

    The rate is that of the scored positions, or 15% if there are few.
    """
    random = np.random.Generator(np.random.PCG64(seed))
    text = reading.truth >= 0
    share = reading.scored.sum() / text.sum()
    hidden = (random.random(text.shape) < (share if share > FEW else MASKING_PROB)) & text
    inputs = np.where(hidden, mask, np.where(text, reading.truth, reading.inputs))
    ignored = -100 if reading.ignored is None else reading.ignored
    labels = np.where(hidden, reading.truth, ignored)
    labelled = hidden & (labels != ignored)
    return inputs, labels, Reading(inputs, labels, reading.truth, reading.offsets, labelled, hidden, reading.ignored)
