"""The windows that a pipeline is measured on: its own evaluation batches, and the loss at their hidden positions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from auditing.errors import TargetError
from auditing.pipelines.batch import Array, Batch, Call
from auditing.pipelines.known_losses import Measured, losses_of
from auditing.pipelines.learning import are_probabilities, to_log_probs
from auditing.pipelines.levels import Level, compare
from auditing.pipelines.perturbation import masked_anew
from auditing.pipelines.references import Play, References
from auditing.pipelines.tokens import Tokens
from auditing.pipelines.windows_read import Reading, read_windows

MIN_SCORED = 100  # hidden positions; with fewer, the audit hides characters itself


@dataclass(frozen=True)
class Held:
    """A batch that the target's process holds, with the audit's changes to it."""

    index: int
    batch: Batch
    reading: Reading
    changes: Mapping[str, Array] = field(default_factory=dict)


class EvaluationWindows:
    """Measures the model in the target's process on batches, position by position."""

    def __init__(self, call: Call, play: Play, batches: Sequence[Batch]):
        """`batches` are those that `make` gave last."""
        self.call, self.play = call, play
        self.held = [
            Held(i, batch, read_windows(batch, play.validation, play.tokens)) for i, batch in enumerate(batches)
        ]

    @property
    def readings(self) -> list[Reading]:
        """The readings of all batches."""
        return [held.reading for held in self.held]

    @property
    def n_scored(self) -> int:
        """The number of positions at which losses are compared."""
        return sum(int(reading.scored.sum()) for reading in self.readings)

    def masked_anew(self, seed: int) -> "EvaluationWindows":
        """The same text with the audit's own masks: 15% of the characters, or as many as the pipeline hides."""
        other = EvaluationWindows.__new__(EvaluationWindows)
        other.call, other.play = self.call, self.play
        other.held = [_masked_anew(held, self.play.tokens, seed + held.index) for held in self.held]
        return other

    def references(self) -> References:
        """The losses of all predictors at the scored positions, one batch after the other."""
        return self.play.references(self.readings)

    def losses(self, changes: Mapping[str, Array] | None = None, only: int | None = None) -> Array:
        """The model's loss at the scored positions, `[n_scored]`, of all batches or of the batch `only`."""
        chosen = self.held if only is None else [self.held[only]]
        found = []
        for held in chosen:
            log_probs = self.log_probs(held, changes or {})
            found.append(losses_of(log_probs, held.reading.truth)[held.reading.scored])
        return np.concatenate(found)

    def level(self, reference: Array, windows: Array, losses: Array | None = None) -> Level:
        """The model's mean loss next to a reference at the same positions."""
        return compare(self.losses() if losses is None else losses, reference, windows)

    def log_probs(self, held: Held, changes: Mapping[str, Array]) -> Array:
        """log P `[batch, seq_len, n_logits]`, nan where the model does not predict."""
        return to_log_probs(self._logits(held, changes)[1])

    def measured(self, held: Held) -> tuple[Measured, bool]:
        """A batch with its loss, and whether its logits are probabilities."""
        loss, logits = self._logits(held, {})
        reading = held.reading
        weights = reading.labelled.astype(float)
        measured = Measured(loss, to_log_probs(logits), reading.labels, weights, reading.truth, reading.ignored)
        return measured, are_probabilities(logits)

    def _logits(self, held: Held, changes: Mapping[str, Array]) -> tuple[float, Array]:
        loss, logits = self.call("measure", held.index, {**held.changes, **changes})
        if logits.ndim == 3:
            return loss, logits
        if len(logits) != held.reading.labelled.sum():
            raise TargetError(
                f"loss_and_logits called with inputs {list(held.batch.inputs.shape)} returned logits"
                f" {list(logits.shape)}, but {held.reading.labelled.sum()} positions have a label"
            )
        everywhere = np.full((*held.batch.inputs.shape, logits.shape[-1]), np.nan, dtype=np.float32)
        everywhere[held.reading.labelled] = logits
        return loss, everywhere


def _masked_anew(held: Held, tokens: Tokens, seed: int) -> Held:
    inputs, labels, reading = masked_anew(held.reading, tokens.mask, seed)
    changes = {"inputs": inputs, "labels": labels}
    return Held(held.index, Batch(inputs, labels, held.batch.others), reading, changes)
