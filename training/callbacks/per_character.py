"""Adds the loss per character to each row."""

import math
from typing import Any

import torch

from data.protocol import ValidationSet
from training.callbacks.callback import Callback
from training.evaluation import Evaluation


class PerCharacter(Callback):
    """Adds the loss per character, which makes runs with different tokens comparable."""

    def __init__(self, lengths: torch.Tensor):
        """`lengths` `[n_tokens]` are the numbers of characters that begin in each token."""
        self.lengths = lengths

    def measured(self, trainer: Any, row: dict[str, Any], evaluation: Evaluation) -> None:
        row |= per_character(evaluation, trainer.evaluator.validation, self.lengths)


def per_character(
    evaluation: Evaluation, validation: ValidationSet, lengths: torch.Tensor | None
) -> dict[str, float]:
    """The loss per character that begins in a masked token; empty if tokens are characters, or if
    none begins."""
    n_chars = (
        0 if lengths is None else int(lengths[validation.windows[validation.masked].cpu()].sum())
    )
    loss = float(evaluation.window_losses.sum()) / max(n_chars, 1)
    return (
        {"loss.valid_per_character": loss, "bits_per_character": loss / math.log(2)}
        if n_chars
        else {}
    )
