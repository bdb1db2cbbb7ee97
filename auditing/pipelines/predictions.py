"""The predictions of the model in the target's process, and how much they move if one thing in a batch changes.

Some things must move the prediction of a hidden character, such as its neighbors; others must not, such as its label.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from auditing.errors import TargetError
from auditing.finding import Finding, Verdict
from auditing.pipelines.batches import checked
from auditing.pipelines.known_losses import Measured, are_probabilities, losses_of, name_of, to_log_probs
from auditing.pipelines.play_tokens import Array, Tokens
from auditing.pipelines.target_batch import Batch, Call
from auditing.pipelines.windows_read import Reading

STILL = 1e-3  # nats: a prediction that must not move may move by less, if a kernel rounds otherwise
BLOCKED = 2e-5  # nats: a prediction that must move moves by more, even before training

RULES = {  # of each change: whether it must move the prediction, and the name and the cause of the bug if it is wrong
    "characters on both sides": (True, "no-context", "Attention is blocked, so no neighbor counts: check its mask."),
    "characters on the left": (True, "no-left-context", "Attention does not reach the left: check its mask."),
    "characters on the right": (True, "no-right-context", "A causal mask hides the right."),
    "order of the characters": (True, "no-positions", "The model has no positions: check their embedding."),
    "labels": (False, "leak-labels", "The model sees its labels: they reach the decoder or the inputs."),
    "other windows": (False, "attends-over-batch", "Attention runs across the batch: check batch_first."),
}


@dataclass(frozen=True)
class Predictions:
    """Batches that the target's process keeps under a name, and what they show of the text."""

    call: Call
    name: str
    batches: Sequence[Batch]
    readings: Sequence[Reading]
    before: dict[int, Array] = field(default_factory=dict)  # log P of batches without a change

    @property
    def n_scored(self) -> int:
        """The number of positions at which losses are compared."""
        return sum(int(reading.scored.sum()) for reading in self.readings)

    @property
    def fullest(self) -> int:
        """The batch with the most scored positions."""
        return int(np.argmax([reading.scored.sum() for reading in self.readings]))

    def measured(self, i: int, changes: Mapping[str, Array] | None = None, table: Array | None = None) -> Measured:
        """The loss of batch `i`, and log P at every position, nan where the model does not predict."""
        loss, logits = self.call("measure", self.name, i, changes or {}, table)
        r = self.readings[i]
        if logits.ndim == 2:
            if len(logits) != r.labelled.sum():
                raise TargetError(
                    f"loss_and_logits called with inputs {list(r.inputs.shape)} returned logits {list(logits.shape)},"
                    f" but {r.labelled.sum()} positions have a label"
                )
            flat, logits = logits, np.full((*r.inputs.shape, logits.shape[-1]), np.nan, dtype=np.float32)
            logits[r.labelled] = flat
        are = are_probabilities(logits)
        return Measured(loss, to_log_probs(logits), r.labels, r.labelled * 1.0, r.truth, r.ignored, None, are)

    def losses(self) -> Array:
        """The losses at the scored positions of all batches, `[n_scored]`."""
        found = [losses_of(self.measured(i).log_probs, r.truth)[r.scored] for i, r in enumerate(self.readings)]
        return np.concatenate(found)

    def moved(self, i: int, changes: Mapping[str, Array], where: Array | None = None) -> float:
        """The most that a change moves log P at scored positions of batch `i`, those in `where` (bool), in nats."""
        return self.difference(i, self.measured(i, changes).log_probs, where)

    def difference(self, i: int, log_probs: Array, where: Array | None = None) -> float:
        """The largest difference of log P from those of batch `i`, as `moved`."""
        if i not in self.before:
            self.before[i] = self.measured(i).log_probs
        scored = self.readings[i].scored if where is None else where
        return float(np.abs(np.nan_to_num(log_probs[scored] - self.before[i][scored])).max(initial=0))

    @property
    def noise(self) -> float:
        """How much predictions move if nothing changes."""
        return self.moved(self.fullest, {})


def moves(moved: float) -> str:
    """How much a prediction moves, in words."""
    return f"log P moves by {moved:.2g}" if moved > BLOCKED else "log P does not move"


def check_loss(predictions: Predictions, tokens: Tokens, seed: int) -> list[Finding]:
    """Is the loss the mean over labelled positions in nats? It is that of random logits in the model's place."""
    table = np.random.Generator(np.random.PCG64(seed)).normal(size=(tokens.n_tokens, tokens.n_tokens))
    labelled = [i for i, reading in enumerate(predictions.readings) if reading.labelled.any()]
    if not labelled:
        return []
    softmax = predictions.measured(labelled[0]).are_probabilities
    measured = [predictions.measured(i, table=table) for i in labelled]
    what, bug = name_of(measured, tokens.names[: tokens.n_ordinary])
    cause = f"The loss is {what}." if what else "None of the usual means: another loss or a penalty may be added."
    verdict = Verdict.DIFFERS if bug in ("mean-of-means", "unknown-loss") else Verdict.BROKEN
    numbers = f"{measured[0].loss:.4f}", f"{measured[0].mean():.4f}"
    twice = ("softmax-twice", "The model ends with a softmax, and cross-entropy applies another.") if softmax else None
    found, expected = f"{'' if softmax else 'not '}probabilities", "not probabilities"
    return [
        checked("loss of known logits", *numbers, "exact", (bug, cause) if bug else None, verdict),
        checked("logits", found, expected, "exact", twice),
    ]


def check_predictions(predictions: Predictions, n_ordinary: int, seed: int) -> list[Finding]:
    """A finding per change in `RULES`, for one scored position per window, the one nearest to the middle.

    If the same batch gives other predictions each time, nothing else can be said. A model that does not use any
    neighbor has one finding for both sides.
    """
    i = predictions.fullest
    noise = predictions.noise
    again = None if noise <= STILL else ("not-deterministic", "Dropout is active in evaluation, or the model draws.")
    verdict = Verdict.DIFFERS
    findings = [checked("the same batch again", moves(noise), "it does not move", "exact", again, verdict)]
    for name, changes, where in _changes(predictions.batches[i], predictions.readings[i], n_ordinary, seed):
        if again or any(each.bug == "no-context" for each in findings):
            break
        moved = predictions.moved(i, changes, where)
        must_move, bug, cause = RULES[name]
        is_wrong = moved <= BLOCKED if must_move else moved > STILL
        expected = "it moves" if must_move else "it does not move"
        findings.append(checked(f"change of {name}", moves(moved), expected, "exact", (bug, cause) if is_wrong else None))
    return findings


def _changes(batch: Batch, reading: Reading, n_ordinary: int, seed: int) -> Iterator[tuple[str, dict[str, Array], Array]]:
    """Name, changed tensors, and the positions whose prediction counts, bool."""
    random, x = np.random.Generator(np.random.PCG64(seed)), batch.inputs
    visible, places = reading.is_text & (x < n_ordinary), np.arange(x.shape[1])
    target = np.where(reading.scored, np.abs(places - len(places) / 2), np.inf).argmin(1)[:, None]
    at = reading.scored & (places == target)

    def other(values: Array, where: Array) -> Array:
        """Other ordinary ids at the positions `where` (bool), drawn uniformly."""
        steps = random.integers(1, n_ordinary, values.shape)
        return np.where(where, (np.clip(values, 0, n_ordinary - 1) + steps) % n_ordinary, values)

    yield "labels", {"labels": other(batch.labels, reading.labelled)}, at
    half = (random.permutation(len(x)) % 2 == 0)[:, None]
    yield "other windows", {"inputs": other(x, visible & ~half)}, at & half
    yield "characters on both sides", {"inputs": other(x, visible & (places != target))}, at
    yield "characters on the left", {"inputs": other(x, visible & (places < target))}, at
    yield "characters on the right", {"inputs": other(x, visible & (places > target))}, at
    shuffled = x.copy()
    for row, here in enumerate(visible):
        shuffled[row, here] = random.permutation(x[row, here])
    yield "order of the characters", {"inputs": shuffled}, at
