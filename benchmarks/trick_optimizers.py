"""Optimizers for benchmarks/tricks.py: those of `quick` with one published trick each.

Each function with `@option` is a value of training.optimizer, as in configs/training.py.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from configs.training import TrainingConfigs, muon, option
from training.optimizers import RowAdagrad

TABLE_DECAY = 0.1
SNAPSHOT_STEPS = 10  # averaging all weights at each step would cost more than the step
SNAPSHOTS = 10  # of which the average consists, about


@option(TrainingConfigs.optimizer)
def cautious_weight_decay(c: TrainingConfigs) -> list[Optimizer]:
    """Weight decay only where the update moves the weight towards zero as well."""
    optimizers = muon(c)
    for optimizer in optimizers:
        if not isinstance(optimizer, RowAdagrad):
            optimizer.step = _cautious(optimizer)
    return optimizers


def _cautious(optimizer: Optimizer) -> Callable[[], None]:
    """The step of `optimizer`, with its weight decay where update and weight have opposite signs."""
    step = optimizer.step
    decays = [group["weight_decay"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["weight_decay"] = 0.0

    @torch.no_grad()
    def cautious_step() -> None:
        weights = [[p for p in group["params"] if p.grad is not None] for group in optimizer.param_groups]
        before = [[p.clone() for p in group] for group in weights]
        step()
        for group, decay, new, old in zip(optimizer.param_groups, decays, weights, before, strict=True):
            for weight, previous in zip(new, old, strict=True) if decay else ():
                weight -= group["lr"] * decay * previous * ((previous - weight) * previous > 0)

    return cautious_step


class DecayedRows(RowAdagrad):
    """RowAdagrad with weight decay of the rows that a step looks up; for sparse gradients, so on a CPU only."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for table in group["params"]:
                table[table.grad.indices()[0]] *= 1 - group["lr"] * TABLE_DECAY
        super().step(closure)


@option(TrainingConfigs.optimizer)
def table_decay(c: TrainingConfigs) -> list[Optimizer]:
    """Weight decay of the rows of tables."""
    return [
        DecayedRows(optimizer.param_groups[0]["params"], lr=c.table_learning_rate)
        if isinstance(optimizer, RowAdagrad)
        else optimizer
        for optimizer in muon(c)
    ]


class Averaging(Optimizer):
    """Keeps a running mean of the weights, which takes their place while the model is in evaluation mode.

    Checkpoints do not contain it: they hold the last weights, and a resumed run begins a new mean.
    """

    def __init__(self, model: nn.Module):
        super().__init__(model.parameters(), {"lr": 0.0})
        self.means = [p.detach().clone() for p in self.weights]
        self.n_steps = 0
        train = model.train

        def swapping_train(mode: bool = True) -> nn.Module:
            if mode != model.training:
                self.swap()
            return train(mode)

        model.train = swapping_train  # type: ignore[method-assign]

    @property
    def weights(self) -> list[nn.Parameter]:
        return self.param_groups[0]["params"]

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Add the weights to the mean in every tenth step. Early means are over fewer steps."""
        if self.n_steps % SNAPSHOT_STEPS == 0:
            share = 1 / min(SNAPSHOTS, self.n_steps // SNAPSHOT_STEPS + 1)
            torch._foreach_lerp_(self.means, [p.detach() for p in self.weights], share)
        self.n_steps += 1

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange the weights and their means."""
        for weight, mean in zip(self.weights, self.means, strict=True):
            kept = weight.clone()
            weight.copy_(mean)
            mean.copy_(kept)


@option(TrainingConfigs.optimizer)
def averaged_weights(c: TrainingConfigs) -> list[Optimizer]:
    """A running mean over about the last 100 steps is evaluated."""
    return [*muon(c), Averaging(c.network)]
