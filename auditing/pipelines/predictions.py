"""The predictions of the model in the target's process, and how much they move if one thing in a batch changes.

Some things must move the prediction of a hidden character, such as its neighbors; others must not, such as its label.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from auditing.errors import TargetError
from auditing.finding import Finding, Verdict
from auditing.pipelines.batches import Problem, checked, differ
from auditing.pipelines.known_losses import Measured, are_probabilities, log_softmax, losses_of
from auditing.pipelines.target_batch import Array, Batch, Call
from auditing.pipelines.windows_read import Reading

STILL = 1e-3  # nats: a prediction that must not move may move by less, if a kernel rounds otherwise
BLOCKED = 2e-5  # nats: a prediction that must move moves by more, even before training

RULES = {  # of each change: whether it must move the prediction, and the name and the cause of the bug if it is wrong
    "labels": (False, "leak-labels", "The model sees its labels: they reach the decoder or the inputs."),
    "other windows": (False, "attends-over-batch", "Attention runs across the batch: check batch_first."),
    "characters on the left": (True, "no-left-context", "Attention does not reach the left: check its mask."),
    "characters on the right": (True, "no-right-context", "Attention does not reach the right, as with a causal mask."),
    "order of the characters": (True, "no-positions", "The model has no positions: check their embedding."),
}


@dataclass
class Predictions:
    """Batches that the target's process keeps under a name, and what they show of the text."""

    call: Call
    name: str
    batches: Sequence[Batch]
    readings: Sequence[Reading]
    before: dict[int, Array] = field(default_factory=dict)  # log P of batches, to compare with

    def __post_init__(self) -> None:
        scored = [int(reading.scored.sum()) for reading in self.readings]
        self.n_scored, self.fullest = sum(scored), int(np.argmax(scored))

    def measured(self, i: int, changes: Mapping[str, Array] | None = None, *tables: Array) -> Measured:
        """The loss of batch `i`, and log P at every position, nan where the model does not predict."""
        loss, logits = self.call("measure", self.name, i, changes or {}, *tables)
        r = self.readings[i]
        if logits.ndim == 2:
            if len(logits) != r.labelled.sum():
                raise TargetError(
                    f"loss_and_logits called with inputs {list(r.inputs.shape)} returned logits {list(logits.shape)},"
                    f" but {r.labelled.sum()} positions have a label"
                )
            flat, logits = logits, np.full((*r.inputs.shape, logits.shape[-1]), np.nan, dtype=np.float32)
            logits[r.labelled] = flat
        log_probs = np.log(np.maximum(logits, 1e-30)) if are_probabilities(logits) else log_softmax(logits)
        return Measured(loss, log_probs, r.labels, r.labelled, r.truth, r.ignored)

    def of_known_logits(self, n_tokens: int, seed: int) -> list[Measured]:
        """The losses of random logits in the model's place, of batches with labels."""
        table = np.random.Generator(np.random.PCG64(seed)).normal(size=(n_tokens, n_tokens))
        return [self.measured(i, None, table) for i, reading in enumerate(self.readings) if reading.labelled.any()]

    def check_logits(self) -> Finding:
        """Are the logits probabilities, so that the cross-entropy applies a second softmax?"""
        are = are_probabilities(self.call("measure", self.name, self.fullest, {})[1])
        twice: Problem = ("softmax-twice", "The model ends with a softmax, and cross-entropy applies another.")
        found, expected = f"{'' if are else 'not '}probabilities", "not probabilities"
        return checked("logits", found, expected, "exact", twice if are else None)

    def losses(self) -> Array:
        """The losses at the scored positions of all batches, `[n_scored]`."""
        found = [losses_of(self.measured(i).log_probs, r.truth)[r.scored] for i, r in enumerate(self.readings)]
        return np.concatenate(found)

    def moved(self, i: int, changes: Mapping[str, Array], where: Array | None = None) -> float:
        """The most that a change moves log P at scored positions of batch `i`, or at others (bool), in nats."""
        if i not in self.before:
            self.before[i] = self.measured(i).log_probs
        at = self.readings[i].scored if where is None else where
        return float(np.abs(np.nan_to_num((self.measured(i, changes).log_probs - self.before[i])[at])).max(initial=0))


def check_predictions(predictions: Predictions, n_ordinary: int, seed: int) -> list[Finding]:
    """A finding per change in `RULES`, for one scored position per window, the one nearest to the middle.

    If the same batch gives other predictions each time, nothing else can be said.
    """
    i = predictions.fullest
    noise = predictions.moved(i, {})
    again: Problem = ("not-deterministic", "Dropout is active in evaluation, or the model draws.")
    if noise > STILL:
        return [checked("the same batch again", moves(noise), "it does not move", "exact", again, Verdict.DIFFERS)]
    findings = []
    for name, changes, where in _changes(predictions.batches[i], predictions.readings[i], n_ordinary, seed):
        moved, (must_move, bug, cause) = predictions.moved(i, changes, where), RULES[name]
        is_wrong = moved <= BLOCKED if must_move else moved > STILL
        expected, problem = "it moves" if must_move else "it does not move", (bug, cause) if is_wrong else None
        findings.append(checked(f"change of {name}", moves(moved), expected, f"{where.sum()} positions", problem))
    return findings


def check_others(predictions: Predictions, after: Sequence[Batch]) -> list[Finding]:
    """A finding per further tensor that differs in rebuilt batches beside equal inputs: the model must not use it."""
    findings = []
    for key in predictions.batches[0].others:
        pairs = enumerate(zip(predictions.batches, after, strict=False))
        i = next((i for i, (x, y) in pairs if differ(x, y, key) and not differ(x, y, "inputs")), None)
        if i is None:
            continue
        old, new = predictions.batches[i].others[key], after[i].others.get(key, np.zeros(0))
        moved = predictions.moved(i, {key: new}) if new.shape == old.shape else 0.0
        is_used = moved > STILL >= predictions.moved(i, {})
        cause = f"Element {key} of the batch depends on the hidden characters, and the predictions "
        cause += "on it." if is_used else "do not depend on it, as far as can be seen."
        problem = "leak-position-ids" if "position" in key else "leak-target", cause
        name, verdict = f"{predictions.name}: {key} rebuilt", Verdict.BROKEN if is_used else Verdict.DIFFERS
        findings.append(checked(name, moves(moved), "no change", "exact", problem, verdict))
    return findings


def moves(moved: float) -> str:
    """How much a prediction moves, in words."""
    return f"log P moves by {moved:.2g}" if moved > BLOCKED else "log P does not move"


def _changes(
    batch: Batch, reading: Reading, n_ordinary: int, seed: int
) -> Iterator[tuple[str, dict[str, Array], Array]]:
    """Name, changed tensors, and the positions whose prediction counts, bool."""
    random, x = np.random.Generator(np.random.PCG64(seed)), batch.inputs
    visible, places = reading.is_text & (x < n_ordinary), np.arange(x.shape[1])
    target = np.where(reading.scored, np.abs(places - len(places) / 2), np.inf).argmin(1)[:, None]
    at = reading.scored & (places == target)

    def other(values: Array, where: Array) -> Array:
        steps = random.integers(1, n_ordinary, values.shape)
        return np.where(where, (np.clip(values, 0, n_ordinary - 1) + steps) % n_ordinary, values)

    half = (random.permutation(len(x)) % 2 == 0)[:, None]
    yield "labels", {"labels": other(batch.labels, reading.labelled)}, at
    yield "other windows", {"inputs": other(x, visible & ~half)}, at & half
    yield "characters on the left", {"inputs": other(x, visible & (places < target))}, at
    yield "characters on the right", {"inputs": other(x, visible & (places > target))}, at
    shuffled = x.copy()
    for row, here in enumerate(visible):
        shuffled[row, here] = random.permutation(x[row, here])
    yield "order of the characters", {"inputs": shuffled}, at
