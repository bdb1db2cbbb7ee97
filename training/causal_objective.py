"""The objective of causal and masked batches: predict the next tokens, or the masked ones."""

from torch import nn

from data.batch import Batch
from data.causal_windows import CAUSAL
from training.objective import MaskedObjective, Outcome


class CausalObjective(MaskedObjective):
    """The masked objective on masked batches; on those of `data.causal_windows`, the loss of each
    token given those before it."""

    def outcome(self, model: nn.Module, batch: Batch) -> Outcome:
        if CAUSAL not in batch.extras:
            return super().outcome(model, batch)
        logits = model.forward_causal(batch.inputs)  # type: ignore[operator]
        return self.outcome_of(logits, batch)
