"""Adds the validation loss at the longest training length to each row."""

from data.protocol import ValidationSet, evenly_spaced
from training.callbacks.callback import Callback, Row
from training.evaluation import Evaluation
from training.loop import Trainer


class AtLongest(Callback):
    """Adds `loss.valid_at_longest`, for training windows that are longer than the protocol's."""

    def __init__(self, validation: ValidationSet):
        """`validation` is the validation text in windows of the longest training length."""
        self.validation = validation

    def measured(self, trainer: Trainer, row: Row, evaluation: Evaluation) -> None:
        evaluator = trainer.evaluator
        longest = self.validation.windows.shape[1]
        # as many tokens as `loss.valid` reads
        n_windows = max(1, evaluator.validation.windows.numel() // longest)
        rows = evenly_spaced(self.validation.n_windows, n_windows)
        some = self.validation.take(rows)
        losses, _ = evaluator.outcomes_of(
            trainer.model,
            some.windows,
            some.masked,
            evaluator.mask_token,
            some.attention_mask,
        )
        row["loss.valid_at_longest"] = losses.mean().item()
