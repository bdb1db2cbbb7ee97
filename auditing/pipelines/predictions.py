"""The predictions of the model in the target's process, and how much they move if one thing in a
batch changes.

Some things must move the prediction of a hidden character, such as its neighbors; others must not,
such as its label.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from auditing.errors import TargetError
from auditing.findings import Finding, finding
from auditing.masks.table import Table
from auditing.masks.texts import Masked
from auditing.pipelines.known_losses import (
    MeasuredLoss,
    are_probabilities,
    log_softmax,
    losses_of,
    name_of,
)
from auditing.pipelines.target_batch import Array, Call, Tokens

STILL = 1e-3  # nats: a prediction that must not move may move by less, if a kernel rounds otherwise
BLOCKED = 2e-5  # nats: a prediction that must move moves by more, even before training


@dataclass
class Predictions:
    """Batches that the target's process keeps under a name, and the table of them."""

    call: Call
    name: str
    batches: Sequence[Masked]
    table: Table
    before: dict[int, Array] = field(default_factory=dict)  # log P of batches, to compare with

    def of_batch(self, i: int, column: Array) -> Array:
        """The part `[batch, seq_len]` of a column of the table, such as `masked`."""
        rows, width = self.batches[i].inputs.shape
        return column[i, :rows, :width]

    def measured(self, i: int, changes: Mapping[str, Array] | None = None) -> MeasuredLoss:
        """The loss of batch `i`, and log P at every position, nan where the model does not predict."""
        loss, logits = self.call("measure", self.name, i, changes or {})
        t, shape = self.table, self.batches[i].inputs.shape
        labelled = self.of_batch(i, t.labelled)
        if logits.ndim == 2:
            if len(logits) != labelled.sum():
                why = f"{list(shape)} returned logits {list(logits.shape)}, but {labelled.sum()} positions have a label"
                raise TargetError(f"loss_and_logits called with inputs {why}")
            flat, logits = logits, np.full((*shape, logits.shape[-1]), np.nan, dtype=np.float32)
            logits[labelled] = flat
        are = are_probabilities(logits)
        log_probs = np.log(np.maximum(logits, 1e-30)) if are else log_softmax(logits)
        truth = self.of_batch(i, np.where(t.source >= 0, t.originals, -1))
        return MeasuredLoss(
            loss, log_probs, self.of_batch(i, t.labels), labelled, truth, t.ignored, are
        )

    def losses(self) -> Array:
        """The losses at the positions of all batches that show [MASK] and have a label,
        `[n_scored]`."""
        every = [
            (self.measured(i), self.of_batch(i, self.table.masked))
            for i in range(len(self.batches))
        ]
        return np.concatenate(
            [losses_of(each.log_probs, each.truth)[masked] for each, masked in every]
        )

    def moved(self, i: int, changes: Mapping[str, Array], where: Array | None = None) -> float:
        """The most that a change moves log P at scored positions of batch `i`, or at others (bool),
        in nats."""
        if i not in self.before:
            self.before[i] = self.measured(i).log_probs
        at = self.of_batch(i, self.table.masked) if where is None else where
        return float(
            np.abs(np.nan_to_num((self.measured(i, changes).log_probs - self.before[i])[at])).max(
                initial=0
            )
        )


def check_loss(predictions: Predictions, tokens: Tokens) -> Finding:
    """Is the loss the mean over labelled positions in nats, of the logits that came with it?"""
    measured = [
        predictions.measured(i)
        for i in np.flatnonzero(predictions.table.labelled.any((1, 2))).tolist()
    ]
    what, bug = name_of(measured, tokens.characters)
    bug = "softmax-twice" if measured[0].are_probabilities else bug
    found, expected = f"{measured[0].loss:.4f}, {what}", f"{measured[0].mean():.4f}"
    return finding("loss of known logits", found, expected, "exact", bug or None)


def check_predictions(predictions: Predictions, n_ordinary: int, seed: int) -> list[Finding]:
    """A finding per kind of change, for one scored position per window, the one nearest to the
    middle.

    If the same batch gives other predictions each time, nothing else can be said.
    """
    table, random = predictions.table, np.random.Generator(np.random.PCG64(seed))
    i = int(table.masked.sum((1, 2)).argmax())
    arrays, noise = predictions.batches[i].arrays, predictions.moved(i, {})
    if noise > STILL:
        return [
            finding(
                "the same batch again",
                moves(noise),
                "it does not move",
                "exact",
                "not-deterministic",
            )
        ]
    x, masked = arrays["inputs"], predictions.of_batch(i, table.masked)
    places = np.arange(x.shape[1])
    target = np.where(masked, np.abs(places - len(places) / 2), np.inf).argmin(1)[:, None]
    is_text = predictions.of_batch(i, table.source) >= 0
    visible, half = is_text & (x < n_ordinary), (random.permutation(len(x)) % 2 == 0)[:, None]
    rows, drawn, shuffled = (
        visible.nonzero()[0],
        random.integers(n_ordinary, size=x.shape),
        x.copy(),
    )
    shuffled[visible] = x[visible][np.lexsort((random.random(len(rows)), rows))]
    # whether it must move the prediction, the bug if it is wrong, where values change, and the new
    # ones
    changes = [
        ("labels", False, "leak-labels", predictions.of_batch(i, table.labelled), drawn),
        ("other windows", False, "attends-over-batch", visible & ~half, drawn),
        ("characters on the left", True, "no-left-context", visible & (places < target), drawn),
        ("characters on the right", True, "no-right-context", visible & (places > target), drawn),
        ("order of the characters", True, "no-positions", visible, shuffled),
    ]
    findings = []
    for name, must_move, bug, where, values in changes:
        key, at = "labels" if name == "labels" else "inputs", masked & (places == target)
        at &= half | (name != "other windows")
        moved = predictions.moved(i, {key: np.where(where, values, arrays[key])}, at)
        is_wrong = moved <= BLOCKED if must_move else moved > STILL
        evidence, expected = (
            f"{at.sum()} positions",
            "it moves" if must_move else "it does not move",
        )
        findings.append(
            finding(
                f"change of {name}", moves(moved), expected, evidence, bug if is_wrong else None
            )
        )
    return findings


def moves(moved: float) -> str:
    """How much a prediction moves, in words."""
    return f"log P moves by {moved:.2g}" if moved > BLOCKED else "log P does not move"
