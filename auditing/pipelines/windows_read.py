"""Reads a pipeline's batches against the text they were made from: what is hidden, replaced, and labelled, exactly."""

import re
from dataclasses import dataclass

import numpy as np

from auditing.errors import TargetError
from auditing.pipelines.target_batch import Array, Batch, Tokens

FOUND = 0.8  # the share of visible characters that agree with the text where a window was cut
SHORTEST = 8  # characters of a piece of text; a shorter one could be anywhere
N_ANCHORS = 3  # runs of visible characters of a piece that are searched for


@dataclass(frozen=True)
class Reading:
    """A batch and the text behind it; all arrays are `[batch, seq_len]`."""

    inputs: Array
    labels: Array
    truth: Array  # the true characters, and -1 where there is no text, such as at [CLS] and [PAD]
    offsets: Array  # of the characters in the text, or -1
    labelled: Array  # bool: the loss counts the position, as far as the labels show
    hidden: Array  # bool: text that [MASK] hides
    ignored: int | None  # the label of all other positions; None if every position has a label

    @property
    def is_text(self) -> Array:  # bool: all but [CLS], [SEP] and [PAD]
        return self.truth >= 0

    @property
    def replaced(self) -> Array:  # bool: text that shows another character or special token
        return self.is_text & ~self.hidden & (self.inputs != self.truth)

    @property
    def scored(self) -> Array:  # bool: hidden text with a label, where losses are compared
        return self.hidden & self.labelled


def read_windows(batch: Batch, text: Array, tokens: Tokens) -> Reading:
    """Find where each window of a batch was cut from `text` `[n]`. Raises TargetError if it shows no such text.

    A special token is text only if it has a character as its label, so it is a random replacement. The others separate
    pieces of text.
    """
    inputs, labels = batch.inputs, batch.labels
    values, counts = np.unique(
        labels, return_counts=True
    )  # the ignored label is not a character, or is the most frequent
    counts = np.where(tokens.is_ordinary(values), counts - labels.size / 2, counts + labels.size)
    ignored = int(values[counts.argmax()]) if counts.max() > 0 else None
    marks = [value for value in batch.others.values() if value.dtype == bool and value.shape == labels.shape]
    marked = marks[0] if len(marks) == 1 else np.ones(labels.shape, dtype=bool)
    labelled = marked if ignored is None else labels != ignored
    visible, has_character = tokens.is_ordinary(inputs), labelled & tokens.is_ordinary(labels)
    shown = np.where(visible, inputs, -1)
    guess, may_be_text = np.where(has_character, labels, shown), visible | has_character | (inputs == tokens.mask)
    offsets, narrow = np.full(inputs.shape, -1), text.astype(np.uint8)
    for row, columns in enumerate(may_be_text):
        for run in split(np.flatnonzero(columns), np.flatnonzero(columns)):
            start = _start(shown[row, run], guess[row, run], narrow) if len(run) >= SHORTEST else None
            if start is not None:
                offsets[row, run] = start + np.arange(len(run))
    truth = np.where(offsets >= 0, text[offsets], -1)
    n_agreeing, n_visible = int((truth == inputs).sum()), int(visible.sum())
    if n_agreeing < FOUND * n_visible or not n_agreeing:
        raise TargetError(
            f"the inputs {list(inputs.shape)} do not show the text that make_batches was given: at best {n_agreeing:,}"
            f" of {n_visible:,} visible characters agree; they must be windows [batch, seq_len] of its ids"
        )
    return Reading(inputs, labels, truth, offsets, labelled, (inputs == tokens.mask) & (truth >= 0), ignored)


def split(positions: Array, by: Array) -> list[Array]:
    """Positions, cut wherever `by`, of the same shape, does not go up by 1."""
    return np.split(positions, np.flatnonzero(np.diff(by) != 1) + 1) if len(positions) else []


def _start(shown: Array, guess: Array, text: Array) -> int | None:
    """The offset of a piece `[n]` in the text, or None. `shown` is -1 where no character is visible.

    `guess` has the labels there, and comes first; then the longest runs of visible characters.
    """
    places = np.flatnonzero(shown >= 0)
    longest = sorted(split(places, places), key=len)[: -N_ANCHORS - 1 : -1]
    for ids, run in [(guess, np.arange(len(guess))), *((shown, run) for run in longest)]:
        sought = re.escape(ids[run].astype(np.uint8).tobytes())
        starts = np.array([match.start() - run[0] for match in re.finditer(sought, text.tobytes())], dtype=np.int64)
        starts = starts[(starts >= 0) & (starts <= len(text) - len(shown))]
        agreeing = (text[starts[:, None] + np.arange(len(shown))] == shown).sum(1)
        if len(starts) and agreeing.max() >= FOUND * len(places):
            return int(starts[agreeing.argmax()])
    return None
