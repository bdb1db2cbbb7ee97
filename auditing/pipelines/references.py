"""Exact losses on the positions that a pipeline masks: unigram and the floor.

This runs in the process of the audit, which holds the play's automaton; the target's process has
the text only.
"""

from collections.abc import Mapping

import numpy as np
import torch

from auditing.findings import Finding, finding
from auditing.masks.table import Table
from auditing.pipelines.play import N_CHARACTERS, Automaton
from auditing.pipelines.target_batch import Array, Tokens
from auditing.statistics import z_of_sums

TRAINING_SHARE = 0.9
LEAK = 5.0  # standard errors below the floor
MIN_WINDOWS = 20  # with fewer, the standard error says too little
NEAR_UNIGRAM = 0.1  # nats: a model this close to the unigram does not use the neighbors


class Play:
    """The text that pipelines are trained on, its automaton, and the losses of predictors on its
    windows."""

    def __init__(self, length: int = N_CHARACTERS):
        """`length` characters; the first 90% are for training."""
        self.automaton = Automaton()
        self.tokens = Tokens(self.automaton.alphabet)
        ids = self.automaton.write(length)
        self.training, self.validation = np.split(ids, [int(length * TRAINING_SHARE)])

    def references(self, table: Table) -> dict[str, Array]:
        """The losses of unigram and floor in nats at the positions that show [MASK] and have a
        label, `[n_scored]`."""
        counts = np.bincount(self.training, minlength=self.tokens.n_ordinary) + 0.5
        return {
            "unigram": -np.log(counts / counts.sum())[table.originals[table.masked]],
            "floor": self.floor(table),
        }

    def floor(self, table: Table) -> Array:
        """The loss of the exact posterior, given everything that the pipeline shows of its text.

        A visible character may be a replacement, in the share that the batches have of them. Pieces
        of text that follow each other are one window.
        """
        n_chars = self.tokens.n_ordinary
        at = np.flatnonzero(table.source >= 0)
        inputs = table.inputs.ravel()[at]
        rows = at // table.inputs.shape[2]
        begins = np.append(
            True, (np.diff(table.source.ravel()[at]) != 1) | (np.diff(rows) != 0)
        )
        number = begins.cumsum() - 1
        # and the place in it
        piece = (number, np.arange(len(at)) - np.flatnonzero(begins)[number])
        # [MASK] says nothing
        shown = np.full([index.max() + 1 for index in piece], n_chars)
        wanted = np.zeros(shown.shape, dtype=bool)
        shown[piece] = np.minimum(inputs, n_chars)
        wanted[piece] = table.masked.ravel()[at]
        truth = table.originals.ravel()[at]
        visible = inputs < n_chars
        different = float((inputs != truth)[visible].mean())
        # 1 of n_chars random characters is the true one
        prob = min(different * n_chars / (n_chars - 1), 1.0)
        posterior = self.automaton.posteriors(
            torch.from_numpy(shown), torch.from_numpy(wanted), prob
        ).numpy()
        truth = table.originals[table.masked]
        return -np.log(posterior[np.arange(len(truth)), truth])


def check_losses(
    losses: Array, references: Mapping[str, Array], table: Table, leak: str = "leak"
) -> list[Finding]:
    """Is the loss below unigram, and not below the floor? `leak` is a bug that explains it."""
    loss, unigram, floor = (
        float(each.mean()) for each in (losses, *references.values())
    )
    bug = "worse-than-unigram" if loss > unigram + NEAR_UNIGRAM else "plateau"
    per_window = table.masked.sum(2).ravel()
    windows = np.repeat(np.arange(len(per_window)), per_window)
    n_windows = int((per_window > 0).sum())
    # Windows are independent, their positions are not.
    z = float(
        z_of_sums(
            np.bincount(windows, losses - references["floor"], len(per_window))[
                per_window > 0
            ]
        )
    )
    found = f"{loss:.3f} ({loss - floor:+.3f})"
    evidence = f"z={z:.0f}, {n_windows} windows"
    below = f"below {unigram - NEAR_UNIGRAM:.3f}"
    n = f"of {len(losses):,}"
    is_learned = loss <= unigram - NEAR_UNIGRAM
    is_leak = n_windows >= MIN_WINDOWS and z < -LEAK
    return [
        finding(
            "loss at [MASK], unigram",
            f"{loss:.3f}",
            below,
            n,
            None if is_learned else bug,
        ),
        finding(
            "loss at [MASK], floor",
            found,
            f"at least {floor:.3f}",
            evidence,
            leak if is_leak else None,
        ),
    ]
