"""Exact reference losses on the positions that a pipeline masks: unigram, counting, and the floor.

This runs in the process of the audit, which holds the play and its automaton; the target's process has the text only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from auditing.pipelines.batch import Array
from auditing.pipelines.tokens import Tokens
from auditing.pipelines.windows_read import Reading
from data.counting import count
from data.play.floor import Floor
from data.play.grammar import LENGTH, grammar, play

TRAINING_SHARE = 0.9


@dataclass(frozen=True)
class References:
    """Losses in nats at the scored positions of a batch, in the order of `Reading.scored.nonzero()`, `[n_scored]`."""

    unigram: Array
    counting: Array
    floor: Array
    windows: Array  # the window of each position


class Play:
    """The text that pipelines are trained on, its automaton, and the losses of predictors on its windows."""

    def __init__(self, length: int = LENGTH):
        """`length` characters; the first 90% are for training."""
        self.tokens = Tokens(grammar().alphabet)
        codes = np.frombuffer(play(length).encode(), dtype=np.uint8)
        id_of = np.zeros(256, dtype=np.int64)
        id_of[list(self.tokens.characters.encode())] = np.arange(self.tokens.n_ordinary)
        ids = id_of[codes]
        split = int(length * TRAINING_SHARE)
        self.training, self.validation = ids[:split], ids[split:]

    @cached_property
    def floor(self) -> Floor:
        """The play's exact posterior."""
        return Floor(grammar())

    @cached_property
    def unigram(self) -> Array:
        """The log-probability of each character by its frequency in the training text, `[n_ordinary]`."""
        counts = np.bincount(self.training, minlength=self.tokens.n_ordinary) + 0.5
        return np.log(counts / counts.sum())

    def references(self, readings: Sequence[Reading]) -> References:
        """The losses of all predictors at the scored positions of batches, one batch after the other."""
        truth = np.concatenate([each.truth[each.scored] for each in readings])
        posterior = np.concatenate([self.posterior(each, each.scored)[each.scored] for each in readings])
        starts = np.cumsum([0] + [len(each.inputs) for each in readings])
        windows = [each.scored.nonzero()[0] + start for each, start in zip(readings, starts, strict=False)]
        floor = -posterior[np.arange(len(truth)), truth]
        return References(-self.unigram[truth], self.counting(readings), floor, np.concatenate(windows))

    def counting(self, readings: Sequence[Reading]) -> Array:
        """The loss of counting at the scored positions, from the n-grams of the neighbors that the pipeline shows."""
        widest = max(each.inputs.shape[1] for each in readings)
        windows, masked, scored = [], [], []
        for each in readings:
            unknown = (each.inputs >= self.tokens.n_ordinary) | (each.truth < 0)
            shown = np.where(each.hidden, each.truth, np.where(unknown, 0, each.inputs))
            beyond = [(0, 0), (0, widest - shown.shape[1])]
            windows.append(np.pad(shown, beyond))
            masked.append(np.pad(each.hidden | unknown, beyond, constant_values=True))
            scored.append(np.pad(each.scored, beyond))
        all_masked = np.concatenate(masked)
        counted = count(self.training, np.concatenate(windows), all_masked, self.tokens.n_ordinary)
        return counted.losses[np.concatenate(scored)[all_masked]]

    def posterior(self, reading: Reading, wanted: Array) -> Array:
        """log P(character | everything the pipeline shows of its text), `[batch, seq_len, n_ordinary]`.

        It is nan where it is not wanted (bool `[batch, seq_len]`). A visible character may be a replacement, in the
        share that the batch has of them. Each piece of text is its own window, and pieces that follow each other are
        one.
        """
        n_chars = self.tokens.n_ordinary
        at = [(row, run) for row, offsets in enumerate(reading.offsets) for run in join_runs(offsets)]
        shown = np.full((len(at), max(len(run) for _, run in at)), n_chars)  # [MASK] says nothing
        asked = np.zeros(shown.shape, dtype=bool)
        for i, (row, run) in enumerate(at):
            shown[i, : len(run)] = np.minimum(reading.inputs[row, run], n_chars)
            asked[i, : len(run)] = wanted[row, run]
        misprint_prob = replacement_prob(reading, n_chars)
        by_char = self.floor.posteriors(torch.from_numpy(shown), torch.from_numpy(asked), misprint_prob).log().numpy()
        posterior, start = np.full((*reading.inputs.shape, n_chars), np.nan), 0
        for row, run in at:
            here = run[wanted[row, run]]
            posterior[row, here] = by_char[start : start + len(here)]
            start += len(here)
        return posterior


def replacement_prob(reading: Reading, n_chars: int) -> float:
    """The probability that a visible character is a random one, as a batch shows. 1 of n_chars is the true one."""
    visible = (reading.truth >= 0) & (reading.inputs < n_chars)
    different = (reading.replaced & visible).sum() / max(visible.sum(), 1)
    return min(float(different) * n_chars / (n_chars - 1), 1.0)


def join_runs(offsets: Array) -> list[Array]:
    """The positions of one window by continuous piece of the text. `offsets` `[seq_len]` are -1 where there is none."""
    positions = np.flatnonzero(offsets >= 0)
    return np.split(positions, np.flatnonzero(np.diff(offsets[positions]) != 1) + 1) if len(positions) else []
