"""Reads a pipeline's batches against the text they were made from: what is hidden, replaced, and labelled, exactly."""

from dataclasses import dataclass

import numpy as np

from auditing.errors import TargetError
from auditing.pipelines.batch import Array, Batch
from auditing.pipelines.tokens import Tokens

FOUND = 0.8  # the share of visible characters that agree with the text where a window was cut
SHORTEST = 8  # characters of a piece of text between special tokens; a shorter one could be anywhere


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
    """Find where each window of a batch was cut from `text` `[n]`. Raises TargetError if it shows no such text."""
    offsets = np.full(batch.inputs.shape, -1)
    ignored = ignored_label(batch.labels, tokens)
    labelled = _selected(batch, ignored)
    guess = np.where(labelled & (batch.labels >= 0) & (batch.labels < tokens.n_ordinary), batch.labels, batch.inputs)
    is_text_column = is_inside(batch.inputs, tokens).mean(0) > 0.5
    following = None  # the offset after the window before: windows may be in the order of the text
    for row, inputs in enumerate(batch.inputs):
        shift, before = None, 0  # of the piece before: its offset in the text minus its position, and its end
        for piece in pieces(inputs, tokens):
            visible = inputs[piece] < tokens.n_ordinary
            expected = following if shift is None else shift + piece[0]
            start = _start(inputs[piece], visible, guess[row, piece], text, expected)
            first = before if shift == start - piece[0] else piece[0]  # special tokens replaced what is between
            shift, before = start - piece[0], piece[-1] + 1
            offsets[row, first:before] = np.arange(first, before) + shift
        _extend(offsets[row], is_text_column, inputs != tokens.padding, len(text))
        following = offsets[row].max() + 1
    truth = np.where(offsets >= 0, text[offsets], -1)
    n_agreeing = int((truth == batch.inputs).sum())
    n_visible = int(((offsets >= 0) & (batch.inputs < tokens.n_ordinary)).sum())
    if n_agreeing < FOUND * n_visible or not n_visible:
        shape = list(batch.inputs.shape)
        raise TargetError(
            f"the inputs {shape} do not show the text that make_batches was given: at best {n_agreeing:,} of"
            f" {n_visible:,} visible characters agree; they must be windows [batch, seq_len] of its ids"
        )
    hidden = (batch.inputs == tokens.mask) & (truth >= 0)
    return Reading(batch.inputs, batch.labels, truth, offsets, labelled, hidden, ignored)


def ignored_label(labels: Array, tokens: Tokens) -> int | None:
    """The label of positions without one: the most frequent one that is no character, or one on most positions."""
    values, counts = np.unique(labels, return_counts=True)
    foreign = (values < 0) | (values >= tokens.n_ordinary)
    if foreign.any():
        return int(values[foreign][counts[foreign].argmax()])
    return int(values[counts.argmax()]) if counts.max() > labels.size / 2 else None


def _selected(batch: Batch, ignored: int | None) -> Array:
    """Labelled positions: those whose label is not ignored or, if all have one, those that a bool tensor marks."""
    if ignored is not None:
        return batch.labels != ignored
    marks = [value for name, value in batch.others.items() if value.dtype == bool and value.shape == batch.labels.shape]
    return marks[0] if len(marks) == 1 else np.ones(batch.labels.shape, dtype=bool)


def pieces(inputs: Array, tokens: Tokens) -> list[Array]:
    """The positions of each piece of text in one window `[seq_len]`: between [CLS], [SEP] and [PAD]."""
    return [run for run in runs(np.flatnonzero(is_inside(inputs, tokens))) if len(run) >= SHORTEST]


def is_inside(inputs: Array, tokens: Tokens) -> Array:
    """Whether ids are characters or [MASK]."""
    return (inputs < tokens.n_ordinary) | (inputs == tokens.mask)


def _extend(offsets: Array, is_text_column: Array, may_be_text: Array, n_text: int) -> None:
    """Extend the offsets `[seq_len]` of a window to the ends of its text, in which special tokens replaced characters.

    A piece beside such a token may be too short to be found alone. Text ends where most windows of the batch have no
    text, bool `[seq_len]`. It may not go on over positions that are padding, which `may_be_text` leaves out.
    """
    found = np.flatnonzero(offsets >= 0)
    for step, at in ((-1, found[0]), (1, found[-1])) if len(found) else ():
        end = at
        while 0 <= end + step < len(offsets) and is_text_column[end + step]:
            end += step
        beyond = np.arange(at, end + step, step)
        there = offsets[at] + beyond - at
        if len(beyond) <= SHORTEST + 1 and may_be_text[beyond].all() and 0 <= there[-1] < n_text:
            offsets[beyond] = there


def runs(positions: Array) -> list[Array]:
    """Ascending positions, cut where one is left out."""
    return np.split(positions, np.flatnonzero(np.diff(positions) != 1) + 1) if len(positions) else []


def _start(shown: Array, visible: Array, guess: Array, text: Array, expected: int | None) -> int:
    """The offset of a piece in the text: the expected one or where `guess` is, if what is visible agrees; or the best.

    All pieces are `[n]`; `guess` has the labels at labelled positions.
    """
    as_bytes = text.astype(np.uint8).tobytes()
    guessed = as_bytes.find(guess.astype(np.uint8).tobytes())
    for starts in ([guessed if expected is None else expected], [guessed], _starts_of_runs(shown, visible, as_bytes)):
        possible = np.array([start for start in starts if 0 <= start <= len(text) - len(shown)], dtype=np.int64)
        if len(possible):
            agreeing = ((text[possible[:, None] + np.arange(len(shown))] == shown) & visible).sum(1)
            if agreeing.max() >= FOUND * visible.sum():
                return int(possible[agreeing.argmax()])
    return best_start(shown, visible, text)


def _starts_of_runs(shown: Array, visible: Array, text: bytes) -> set[int]:
    """The offsets of a piece at which any of its runs of visible characters occurs in the text."""
    starts = set()
    for run in runs(np.flatnonzero(visible)):
        sought = shown[run].astype(np.uint8).tobytes()
        found = text.find(sought) if len(run) >= SHORTEST else -1
        while found >= 0:
            starts.add(found - int(run[0]))
            found = text.find(sought, found + 1)
    return starts


def best_start(shown: Array, visible: Array, text: Array) -> int:
    """The offset in the text at which most visible characters `[n]` agree."""
    n_starts = len(text) - len(shown) + 1
    agreeing = np.zeros(max(n_starts, 1), dtype=np.int16)
    if n_starts < 1:
        return 0
    narrow = text.astype(np.uint8)
    for i in np.flatnonzero(visible):
        agreeing += narrow[i : i + n_starts] == shown[i]
    return int(agreeing.argmax())
