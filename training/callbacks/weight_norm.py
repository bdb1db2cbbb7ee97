"""Adds the norm of the weights to each row."""

from typing import Any

import torch
from torch import nn

from training.callbacks.callback import Callback
from training.evaluation import Evaluation


class WeightNorm(Callback):
    """Adds the root mean square of all weights except tables: one number that shows whether they
    grow."""

    def measured(self, trainer: Any, row: dict[str, Any], evaluation: Evaluation) -> None:
        row["weight_norm"] = self.norm(trainer.model)

    @torch.no_grad()
    def norm(self, model: nn.Module) -> float:
        weights = dense_weights(model)
        total: Any = torch.nn.utils.get_total_norm(weights)
        # of sharded weights
        total = total.full_tensor() if hasattr(total, "full_tensor") else total
        return total.item() / sum(weight.numel() for weight in weights) ** 0.5


def dense_weights(model: nn.Module) -> list[nn.Parameter]:
    """All weights except those of tables, of which a step uses few."""
    tables = {
        id(module.weight) for module in model.modules() if isinstance(module, nn.EmbeddingBag)
    }
    return [weight for weight in model.parameters() if id(weight) not in tables]
