"""Adds the norm of the weights to each row."""

from typing import Any

import torch
from torch import nn

from training.callbacks.callback import Callback, Row
from training.evaluation import Evaluation
from training.loop import Trainer


class WeightNorm(Callback):
    """Adds the root mean square of all weights except tables, which shows whether they grow."""

    def measured(self, trainer: Trainer, row: Row, evaluation: Evaluation) -> None:
        row["weight_norm"] = weight_norm(trainer.model)


@torch.no_grad()
def weight_norm(model: nn.Module) -> float:
    weights = dense_weights(model)
    norm: Any = torch.nn.utils.get_total_norm(weights)
    if hasattr(norm, "full_tensor"):  # of sharded weights
        norm = norm.full_tensor()
    n_weights = sum(weight.numel() for weight in weights)
    return norm.item() / n_weights**0.5


def dense_weights(model: nn.Module) -> list[nn.Parameter]:
    """All weights except those of tables, of which a step uses few."""
    tables = [
        module for module in model.modules() if isinstance(module, nn.EmbeddingBag)
    ]
    of_tables = {id(table.weight) for table in tables}
    return [weight for weight in model.parameters() if id(weight) not in of_tables]
