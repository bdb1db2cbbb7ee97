"""Reads a pipeline's batches against the text they were made from: what is hidden, replaced, and labelled, exactly."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from auditing.errors import TargetError
from auditing.pipelines.play_tokens import Array, Tokens
from auditing.pipelines.target_batch import Batch

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
    def is_text(self) -> Array:
        """Positions of the text, bool: all but [CLS], [SEP] and [PAD]."""
        return self.truth >= 0

    @property
    def replaced(self) -> Array:
        """Text that shows another character or special token, bool."""
        return self.is_text & ~self.hidden & (self.inputs != self.truth)

    @property
    def scored(self) -> Array:
        """The positions at which losses are compared: text that [MASK] hides and that has a label, bool."""
        return self.hidden & self.labelled


def read_windows(batch: Batch, text: Array, tokens: Tokens) -> Reading:
    """Find where each window of a batch was cut from `text` `[n]`. Raises TargetError if it shows no such text.

    A special token is text only if it has a character as its label, so it is a random replacement. The others separate
    pieces of text.
    """
    inputs, labels = batch.inputs, batch.labels
    ignored = ignored_label(labels, tokens)
    marks = [value for value in batch.others.values() if value.dtype == bool and value.shape == labels.shape]
    marked = marks[0] if len(marks) == 1 else np.ones(labels.shape, dtype=bool)
    labelled = marked if ignored is None else labels != ignored
    visible, has_character = tokens.is_ordinary(inputs), labelled & tokens.is_ordinary(labels)
    shown = np.where(visible, inputs, -1)
    guess, may_be_text = np.where(has_character, labels, shown), visible | has_character | (inputs == tokens.mask)
    offsets, narrow, following = np.full(inputs.shape, -1), text.astype(np.uint8), 0
    for row in range(len(inputs)):
        for run in runs(np.flatnonzero(may_be_text[row])):
            start = _start(shown[row, run], guess[row, run], narrow, following) if len(run) >= SHORTEST else None
            if start is not None:
                offsets[row, run] = start + np.arange(len(run))
                following = start + len(run)
    truth = np.where(offsets >= 0, text[offsets], -1)
    n_agreeing, n_visible = int((truth == inputs).sum()), int(visible.sum())
    if n_agreeing < FOUND * n_visible or not n_agreeing:
        raise TargetError(
            f"the inputs {list(inputs.shape)} do not show the text that make_batches was given: at best"
            f" {n_agreeing:,} of {n_visible:,} visible characters agree; they must be windows [batch, seq_len] of its ids"
        )
    return Reading(inputs, labels, truth, offsets, labelled, (inputs == tokens.mask) & (truth >= 0), ignored)


def ignored_label(labels: Array, tokens: Tokens) -> int | None:
    """The label of positions without one: the most frequent one that is no character, or one on most positions."""
    values, counts = np.unique(labels, return_counts=True)
    foreign = ~tokens.is_ordinary(values)
    if foreign.any():
        return int(values[foreign][counts[foreign].argmax()])
    return int(values[counts.argmax()]) if counts.max() > labels.size / 2 else None


def runs(positions: Array) -> list[Array]:
    """Ascending positions, cut where one is left out."""
    return np.split(positions, np.flatnonzero(np.diff(positions) != 1) + 1) if len(positions) else []


def _start(shown: Array, guess: Array, text: Array, following: int) -> int | None:
    """The offset of a piece `[n]` in the text, or None. `shown` is -1 where no character is visible.

    `guess` has the labels there. `following` is the offset after the piece before: they may be in the text's order.
    """
    for starts in _starts(shown, guess, text.tobytes(), following):
        possible = np.array([start for start in starts if 0 <= start <= len(text) - len(shown)], dtype=np.int64)
        agreeing = (text[possible[:, None] + np.arange(len(shown))] == shown).sum(1)
        if len(possible) and agreeing.max() >= FOUND * (shown >= 0).sum():
            return int(possible[agreeing.argmax()])
    return None


def _starts(shown: Array, guess: Array, text: bytes, following: int) -> Iterator[list[int]]:
    """Offsets at which a piece may start, the most likely ones first."""
    yield _occurrences(guess, text)
    yield [following]
    for run in sorted(runs(np.flatnonzero(shown >= 0)), key=len)[: -N_ANCHORS - 1 : -1]:
        yield [at - int(run[0]) for at in _occurrences(shown[run], text)]


def _occurrences(sought: Array, text: bytes) -> list[int]:
    pattern, found = sought.astype(np.uint8).tobytes(), []
    at = text.find(pattern)
    while at >= 0:
        found.append(at)
        at = text.find(pattern, at + 1)
    return found
