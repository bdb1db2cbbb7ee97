"""Adds the loss per character to each row."""

import math

import torch

from data.protocol import ValidationSet
from training.callbacks.callback import Callback, Row
from training.evaluation import Evaluation
from training.loop import Trainer


class PerCharacter(Callback):
    """Adds the loss per character, which makes runs with different tokens comparable."""

    def __init__(self, lengths: torch.Tensor):
        """`lengths` `[n_tokens]` are the mean numbers of characters that begin in each token."""
        self.lengths = lengths

    def measured(self, trainer: Trainer, row: Row, evaluation: Evaluation) -> None:
        row |= per_character(evaluation, trainer.evaluator.validation, self.lengths)


def per_character(
    evaluation: Evaluation, validation: ValidationSet, lengths: torch.Tensor | None
) -> dict[str, float]:
    """The loss per character that begins in a masked token; empty if tokens are characters, or if
    none begins."""
    if lengths is None:
        return {}
    masked_tokens = validation.windows[validation.masked].cpu()
    n_chars = float(lengths[masked_tokens].sum())
    if n_chars == 0:
        return {}
    loss = float(evaluation.window_losses.sum()) / n_chars
    return {"loss.valid_per_character": loss, "bits_per_character": loss / math.log(2)}
