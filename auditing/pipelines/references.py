"""Exact losses on the positions that a pipeline masks: unigram and the floor.

This runs in the process of the audit, which holds the play and its automaton; the target's process has the text only.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import torch

from auditing.catalogue import finding
from auditing.finding import Finding
from auditing.pipelines.target_batch import Array, Tokens
from auditing.pipelines.windows_read import Reading, split
from auditing.statistics import z_of_sums
from data.play.floor import Floor
from data.play.grammar import LENGTH, grammar, play

TRAINING_SHARE = 0.9
LEAK, MIN_WINDOWS = 5.0, 20  # standard errors below the floor; with fewer windows they say too little
NEAR_UNIGRAM = 0.1  # nats: a model this close to the unigram does not use the neighbors


class Play:
    """The text that pipelines are trained on, its automaton, and the losses of predictors on its windows."""

    def __init__(self, length: int = LENGTH):
        """`length` characters; the first 90% are for training."""
        self.tokens = Tokens(grammar().alphabet)
        id_of = {ord(character): i for i, character in enumerate(self.tokens.characters)}
        ids = np.array([id_of.get(code, 0) for code in range(256)])[np.frombuffer(play(length).encode(), np.uint8)]
        self.training, self.validation = np.split(ids, [int(length * TRAINING_SHARE)])

    @cached_property
    def exact(self) -> Floor:
        """The play's exact posterior."""
        return Floor(grammar())

    def references(self, readings: Sequence[Reading]) -> dict[str, Array]:
        """The losses of unigram and floor in nats at the scored positions of all readings, `[n_scored]`."""
        counts = np.bincount(self.training, minlength=self.tokens.n_ordinary) + 0.5
        truth = np.concatenate([each.truth[each.scored] for each in readings])
        floor = np.concatenate([self.floor(each) for each in readings])
        return {"unigram": -np.log(counts / counts.sum())[truth], "floor": floor}

    def floor(self, reading: Reading) -> Array:
        """The loss of the exact posterior, given everything that the pipeline shows of its text.

        A visible character may be a replacement, in the share that the batch has of them. Pieces of text that follow
        each other are one window.
        """
        n_chars = self.tokens.n_ordinary
        texts = [(row, np.flatnonzero(is_text)) for row, is_text in enumerate(reading.is_text)]
        at = [(row, piece) for row, places in texts for piece in split(places, reading.offsets[row, places])]
        shown = np.full((len(at), max(len(piece) for _, piece in at)), n_chars)  # [MASK] says nothing
        wanted = np.zeros(shown.shape, dtype=bool)
        for i, (row, piece) in enumerate(at):
            shown[i, : len(piece)] = np.minimum(reading.inputs[row, piece], n_chars)
            wanted[i, : len(piece)] = reading.scored[row, piece]
        visible = reading.is_text & (reading.inputs < n_chars)
        different = float((reading.replaced & visible).sum() / max(visible.sum(), 1))
        prob = min(different * n_chars / (n_chars - 1), 1.0)  # 1 of n_chars random characters is the true one
        posterior = self.exact.posteriors(torch.from_numpy(shown), torch.from_numpy(wanted), prob).numpy()
        truth = reading.truth[reading.scored]
        return -np.log(posterior[np.arange(len(truth)), truth])


def check_losses(
    losses: Array, references: Mapping[str, Array], readings: Sequence[Reading], leak: str = "leak"
) -> list[Finding]:
    """Is the loss below unigram, and not below the floor? `leak` is a bug that explains it."""
    loss, unigram, floor = (float(each.mean()) for each in (losses, *references.values()))
    bug = "worse-than-unigram" if loss > unigram + NEAR_UNIGRAM else "plateau"
    per_window = np.concatenate([each.scored.sum(1) for each in readings])
    windows, n_windows = np.repeat(np.arange(len(per_window)), per_window), int((per_window > 0).sum())
    # Windows are independent, their positions are not.
    z = float(z_of_sums(np.bincount(windows, losses - references["floor"], len(per_window))[per_window > 0]))
    found, evidence = f"{loss:.3f} ({loss - floor:+.3f})", f"z={z:.0f}, {n_windows} windows"
    below, n = f"below {unigram - NEAR_UNIGRAM:.3f}", f"of {len(losses):,}"
    is_learned, is_leak = loss <= unigram - NEAR_UNIGRAM, n_windows >= MIN_WINDOWS and z < -LEAK
    return [
        finding("loss at [MASK], unigram", f"{loss:.3f}", below, n, None if is_learned else bug),
        finding("loss at [MASK], floor", found, f"at least {floor:.3f}", evidence, leak if is_leak else None),
    ]
