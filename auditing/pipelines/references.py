"""Exact losses on the positions that a pipeline masks: unigram, counting, and the floor.

This runs in the process of the audit, which holds the play and its automaton; the target's process has the text only.
"""

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch

from auditing.pipelines.play_tokens import Array, Tokens
from auditing.pipelines.windows_read import Reading
from data.counting import count
from data.play.floor import Floor
from data.play.grammar import LENGTH, grammar, play

TRAINING_SHARE = 0.9


class Play:
    """The text that pipelines are trained on, its automaton, and the losses of predictors on its windows."""

    def __init__(self, length: int = LENGTH):
        """`length` characters; the first 90% are for training."""
        self.tokens = Tokens(grammar().alphabet)
        id_of = {ord(character): i for i, character in enumerate(self.tokens.characters)}
        ids = np.array([id_of.get(code, 0) for code in range(256)])[np.frombuffer(play(length).encode(), np.uint8)]
        split = int(length * TRAINING_SHARE)
        self.training, self.validation = ids[:split], ids[split:]

    @cached_property
    def exact(self) -> Floor:
        """The play's exact posterior."""
        return Floor(grammar())

    def references(self, readings: Sequence[Reading]) -> dict[str, Array]:
        """The losses of unigram, counting and floor in nats at the scored positions of all readings, `[n_scored]`."""
        counts = np.bincount(self.training, minlength=self.tokens.n_ordinary) + 0.5
        truth = np.concatenate([each.truth[each.scored] for each in readings])
        return {
            "unigram": -np.log(counts / counts.sum())[truth],
            "counting": self.counting(readings),
            "floor": np.concatenate([self.floor(each) for each in readings]),
        }

    def counting(self, readings: Sequence[Reading]) -> Array:
        """The loss of n-grams of the visible neighbors."""
        shown, masked, scored = [], [], []
        for each in readings:
            known = self.tokens.is_ordinary(each.inputs) & each.is_text
            ids = np.where(each.hidden, each.truth, np.where(known, each.inputs, 0))
            for found, value, end in ((shown, ids, 0), (masked, ~known, True), (scored, each.scored, False)):
                found.append(np.pad(value, ((0, 0), (0, 1)), constant_values=end).ravel())
        windows, is_masked = np.concatenate(shown)[None], np.concatenate(masked)[None]
        losses = count(self.training, windows, is_masked, self.tokens.n_ordinary).losses
        return losses[np.concatenate(scored)[is_masked[0]]]

    def floor(self, reading: Reading) -> Array:
        """The loss of the exact posterior, given everything that the pipeline shows of its text.

        A visible character may be a replacement, in the share that the batch has of them. Each piece of text is its own
        window, and pieces that follow each other are one.
        """
        n_chars = self.tokens.n_ordinary
        at = [(row, run) for row, offsets in enumerate(reading.offsets) for run in pieces(offsets)]
        shown = np.full((len(at), max(len(run) for _, run in at)), n_chars)  # [MASK] says nothing
        wanted = np.zeros(shown.shape, dtype=bool)
        for i, (row, run) in enumerate(at):
            shown[i, : len(run)] = np.minimum(reading.inputs[row, run], n_chars)
            wanted[i, : len(run)] = reading.scored[row, run]
        prob = replacement_prob(reading, n_chars)
        posterior = self.exact.posteriors(torch.from_numpy(shown), torch.from_numpy(wanted), prob).numpy()
        truth = reading.truth[reading.scored]
        return -np.log(posterior[np.arange(len(truth)), truth])


def replacement_prob(reading: Reading, n_chars: int) -> float:
    """The probability that a visible character is a random one, as a batch shows. 1 of n_chars is the true one."""
    visible = reading.is_text & (reading.inputs < n_chars)
    different = (reading.replaced & visible).sum() / max(visible.sum(), 1)
    return min(float(different) * n_chars / (n_chars - 1), 1.0)


def pieces(offsets: Array) -> list[Array]:
    """The positions of one window by continuous piece of the text. `offsets` `[seq_len]` are -1 where there is none."""
    positions = np.flatnonzero(offsets >= 0)
    return np.split(positions, np.flatnonzero(np.diff(offsets[positions]) != 1) + 1) if len(positions) else []


def standard_error(differences: Array, readings: Sequence[Reading]) -> tuple[float, int]:
    """The standard error of the mean of differences at the scored positions, `[n_scored]`, and the number of windows.

    Windows are independent, the positions of one are not. It is the error of a ratio, because windows have different
    numbers of positions.
    """
    rows = np.concatenate([each.scored.sum(1) for each in readings])  # positions of each window
    windows = np.repeat(np.arange(len(rows)), rows)
    sums, n_windows = np.bincount(windows, weights=differences - differences.mean()), (rows > 0).sum()
    return math.sqrt((sums**2).sum() * n_windows / max(n_windows - 1, 1)) / len(differences), int(n_windows)
