"""The windows that a pipeline is measured on: its own evaluation batches, and the loss at their hidden positions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from auditing.errors import TargetError
from auditing.pipelines.batch import Array, Batch, Call
from auditing.pipelines.known_losses import Measured, losses_of
from auditing.pipelines.learning import are_probabilities, to_log_probs
from auditing.pipelines.perturbation import draw_masks
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

    def __init__(self, call: Call, play: Play, held: list[Held]):
        self.call, self.play, self.held = call, play, held

    @classmethod
    def of_batches(cls, call: Call, play: Play, batches: Sequence[Batch]) -> Self:
        """`batches` are those that `make_batches` gave last."""
        readings = [read_windows(batch, play.validation, play.tokens) for batch in batches]
        held = [Held(i, batch, reading) for i, (batch, reading) in enumerate(zip(batches, readings, strict=True))]
        return cls(call, play, held)

    @property
    def readings(self) -> list[Reading]:
        """The readings of all batches."""
        return [held.reading for held in self.held]

    @property
    def n_scored(self) -> int:
        """The number of positions at which losses are compared."""
        return sum(int(reading.scored.sum()) for reading in self.readings)

    def masked_anew(self, seed: int) -> Self:
        """The same text with the audit's own masks: 15% of the characters, or as many as the pipeline hides."""
        held = [_masked_anew(each, self.play.tokens, seed + each.index) for each in self.held]
        return type(self)(self.call, self.play, held)

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
    inputs, labels, reading = draw_masks(held.reading, tokens.mask, seed)
    changes = {"inputs": inputs, "labels": labels}
    return Held(held.index, Batch(inputs, labels, held.batch.others), reading, changes)
