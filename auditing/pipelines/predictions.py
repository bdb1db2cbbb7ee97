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
    # log P of batches, to compare with
    before: dict[int, Array] = field(default_factory=dict)

    def of_batch(self, i: int, column: Array) -> Array:
        """The part `[batch, seq_len]` of a column of the table, such as `masked`."""
        rows, width = self.batches[i].inputs.shape
        return column[i, :rows, :width]

    def measured(
        self, i: int, changes: Mapping[str, Array] | None = None
    ) -> MeasuredLoss:
        """The loss of batch `i`, and log P at every position, nan where the model predicts
        nothing."""
        loss, logits = self.call("measure", self.name, i, changes or {})
        table = self.table
        shape = self.batches[i].inputs.shape
        labelled = self.of_batch(i, table.labelled)
        if logits.ndim == 2:
            if len(logits) != labelled.sum():
                returned = f"{list(shape)} returned logits {list(logits.shape)}"
                why = f"but {labelled.sum()} positions have a label"
                raise TargetError(
                    f"loss_and_logits called with inputs {returned}, {why}"
                )
            everywhere = np.full((*shape, logits.shape[-1]), np.nan, dtype=np.float32)
            everywhere[labelled] = logits
            logits = everywhere

        is_softmax = are_probabilities(logits)
        log_probs = (
            np.log(np.maximum(logits, 1e-30)) if is_softmax else log_softmax(logits)
        )
        truth = self.of_batch(i, np.where(table.source >= 0, table.originals, -1))
        labels = self.of_batch(i, table.labels)
        return MeasuredLoss(
            loss, log_probs, labels, labelled, truth, table.ignored, is_softmax
        )

    def losses(self) -> Array:
        """The losses at the positions of all batches that show [MASK] and have a label,
        `[n_scored]`."""
        losses = []
        for i in range(len(self.batches)):
            measured = self.measured(i)
            masked = self.of_batch(i, self.table.masked)
            losses.append(losses_of(measured.log_probs, measured.truth)[masked])
        return np.concatenate(losses)

    def moved(
        self, i: int, changes: Mapping[str, Array], where: Array | None = None
    ) -> float:
        """The most that a change moves log P at scored positions of batch `i`, or at others (bool),
        in nats."""
        if i not in self.before:
            self.before[i] = self.measured(i).log_probs
        if where is None:
            where = self.of_batch(i, self.table.masked)
        difference = self.measured(i, changes).log_probs - self.before[i]
        return float(np.abs(np.nan_to_num(difference[where])).max(initial=0))


def check_loss(predictions: Predictions, tokens: Tokens) -> Finding:
    """Is the loss the mean over labelled positions in nats, of the logits that came with it?"""
    with_labels = np.flatnonzero(predictions.table.labelled.any((1, 2))).tolist()
    measured = [predictions.measured(i) for i in with_labels]
    first = measured[0]
    what, bug = name_of(measured, tokens.characters)
    if first.are_probabilities:
        bug = "softmax-twice"
    text = f"{first.loss:.4f}, {what}"
    return finding(
        "loss of known logits", text, f"{first.mean():.4f}", "exact", bug or None
    )


def check_predictions(
    predictions: Predictions, n_ordinary: int, seed: int
) -> list[Finding]:
    """A finding per kind of change, for one scored position per window, the one nearest to the
    middle.

    If the same batch gives other predictions each time, nothing else can be said.
    """
    table = predictions.table
    i = int(table.masked.sum((1, 2)).argmax())
    noise = predictions.moved(i, {})
    if noise > STILL:
        name = "the same batch again"
        bug = "not-deterministic"
        return [finding(name, moves(noise), "it does not move", "exact", bug)]

    random = np.random.Generator(np.random.PCG64(seed))
    arrays = predictions.batches[i].arrays
    x = arrays["inputs"]
    masked = predictions.of_batch(i, table.masked)
    places = np.arange(x.shape[1])
    target = nearest_to_middle(masked)
    scored = masked & (places == target)
    visible = (predictions.of_batch(i, table.source) >= 0) & (x < n_ordinary)
    half = (random.permutation(len(x)) % 2 == 0)[:, None]
    drawn = random.integers(n_ordinary, size=x.shape)
    shuffled = shuffled_in_windows(x, visible, random)
    elsewhere = visible & ~half
    left = visible & (places < target)
    right = visible & (places > target)
    labelled = predictions.of_batch(i, table.labelled)

    def check(
        name: str, where: Array, values: Array, bug: str, must_move: bool
    ) -> Finding:
        """Change the values at some positions."""
        key = "labels" if name == "labels" else "inputs"
        at = scored & half if name == "other windows" else scored
        moved = predictions.moved(i, {key: np.where(where, values, arrays[key])}, at)
        is_wrong = moved <= BLOCKED if must_move else moved > STILL
        usual = "it moves" if must_move else "it does not move"
        evidence = f"{at.sum()} positions"
        shown = bug if is_wrong else None
        return finding(f"change of {name}", moves(moved), usual, evidence, shown)

    return [
        check("labels", labelled, drawn, "leak-labels", must_move=False),
        check("other windows", elsewhere, drawn, "attends-over-batch", must_move=False),
        check("characters on the left", left, drawn, "no-left-context", must_move=True),
        check(
            "characters on the right", right, drawn, "no-right-context", must_move=True
        ),
        check(
            "order of the characters", visible, shuffled, "no-positions", must_move=True
        ),
    ]


def nearest_to_middle(masked: Array) -> Array:
    """The masked place of each window that is nearest to its middle, `[n_windows, 1]`."""
    places = np.arange(masked.shape[1])
    from_middle = np.where(masked, np.abs(places - len(places) / 2), np.inf)
    return from_middle.argmin(1)[:, None]


def shuffled_in_windows(x: Array, visible: Array, random: np.random.Generator) -> Array:
    """The ids with the visible ones of each window in random order."""
    rows = visible.nonzero()[0]
    shuffled = x.copy()
    shuffled[visible] = x[visible][np.lexsort((random.random(len(rows)), rows))]
    return shuffled


def moves(moved: float) -> str:
    """How much a prediction moves, in words."""
    return f"log P moves by {moved:.2g}" if moved > BLOCKED else "log P does not move"
