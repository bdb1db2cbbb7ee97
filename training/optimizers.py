"""The optimizers: Muon with AdamW, or AdamW alone. Both update tables row by row."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from training.muon import Muon, local

EPS = 1e-10  # avoids 0 / 0 in rows whose gradients have all been 0


def muon(
    model: nn.Module,
    *,
    learning_rate: float,
    muon_learning_rate: float,
    muon_momentum: float,
    table_learning_rate: float,
    weight_decay: float,
    muon_class: Callable[..., Optimizer] = Muon,
) -> list[Optimizer]:
    """Muon for the matrices of the encoder's layers, RowAdagrad for tables, AdamW for all other parameters.

    Muon's updates suit maps between hidden states; embeddings, norms, biases and the head are not such maps. The model
    must have its layers in `encoder.layers`.
    """
    matrices = [p for p in model.encoder.layers.parameters() if p.ndim == 2]  # type: ignore[union-attr]
    by_row, others = _split_off_tables(model, table_learning_rate)
    by_muon = {id(p) for p in matrices}
    return [
        _adamw([p for p in others if id(p) not in by_muon], learning_rate, weight_decay),
        muon_class(matrices, lr=muon_learning_rate, momentum=muon_momentum, weight_decay=weight_decay),
        *by_row,
    ]


def adamw(
    model: nn.Module, *, learning_rate: float, table_learning_rate: float, weight_decay: float
) -> list[Optimizer]:
    """RowAdagrad for tables, AdamW (Loshchilov and Hutter 2019) for all other parameters."""
    by_row, others = _split_off_tables(model, table_learning_rate)
    return [_adamw(others, learning_rate, weight_decay), *by_row]


def _adamw(parameters: list[nn.Parameter], learning_rate: float, weight_decay: float) -> Optimizer:
    # Weight decay pulls weights to zero, which is right for matrices and wrong for the scales of norms and for biases.
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    fused = parameters[0].device.type in ("cpu", "cuda")
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.98), fused=fused)


def _split_off_tables(model: nn.Module, learning_rate: float) -> tuple[list[Optimizer], list[nn.Parameter]]:
    """RowAdagrad for the weights of `nn.EmbeddingBag`s, if the model has any, and the list of all other parameters.

    On a CPU their gradients become sparse. On other devices they stay dense: counting distinct rows would synchronize.
    """
    bags = [module for module in model.modules() if isinstance(module, nn.EmbeddingBag)]
    for bag in bags:
        bag.sparse = bag.weight.device.type == "cpu" and type(bag.weight) is nn.Parameter  # not a sharded tensor
    is_table = {id(bag.weight) for bag in bags}
    tables = [p for p in model.parameters() if id(p) in is_table]
    others = [p for p in model.parameters() if id(p) not in is_table]
    return [RowAdagrad(tables, lr=learning_rate)] if tables else [], others


def gradients_of(model: nn.Module) -> list[torch.Tensor]:
    """The gradients of all parameters that have one; of a table with a sparse gradient, those of its rows."""
    gradients = []
    for parameter in model.parameters():
        if parameter.grad is not None:
            if parameter.grad.is_sparse:
                parameter.grad = parameter.grad.coalesce()  # one sum per row
            gradients.append(parameter.grad.values() if parameter.grad.is_sparse else local(parameter.grad))
    return gradients


@torch.no_grad()
def optimize_or_undo(model: nn.Module, optimizers: Sequence[Optimizer], is_finite: torch.Tensor) -> None:
    """Run the optimizers, and undo the update if the step is not finite. Reading `is_finite` would synchronize."""
    weights = [local(parameter) for parameter in model.parameters() if parameter.grad is not None]
    before = torch._foreach_mul(weights, 1.0)
    for gradient in gradients_of(model):
        gradient.copy_(torch.where(is_finite, gradient, 0.0))
    for optimizer in optimizers:
        optimizer.step()
    for weight, old in zip(weights, before, strict=True):
        weight.copy_(torch.where(is_finite, weight, old))


def load_optimizers(optimizers: Sequence[Optimizer], states: Sequence[dict[str, Any]]) -> None:
    """Load the states of optimizers. Raises ValueError for wrong shapes, which PyTorch does not check."""
    for optimizer, state in zip(optimizers, states, strict=True):
        optimizer.load_state_dict(state)
        for parameter, values in optimizer.state.items():
            allowed = {parameter.shape, parameter.shape[:1], torch.Size()}
            if not {tensor.shape for tensor in values.values() if isinstance(tensor, torch.Tensor)} <= allowed:
                raise ValueError("an optimizer's state does not have the shape of its parameter")


def set_learning_rate(optimizers: Sequence[Optimizer], factor: float) -> None:
    """Set every learning rate to `factor` times its peak."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group.setdefault("peak_lr", group["lr"])
            group["lr"] = group["peak_lr"] * factor


def learning_rate_of(optimizers: Sequence[Optimizer]) -> float:
    """The current learning rate of the first optimizer, which trains the embedding."""
    optimizer = optimizers[0]
    group = optimizer.param_groups[0]
    state = optimizer.state.get(group["params"][0])
    if state and hasattr(optimizer, "get_lr"):  # Noam computes its rate from its own count of steps
        return optimizer.get_lr(state, group)
    return group["lr"]


class RowAdagrad(Optimizer):
    """Adagrad (Duchi et al. 2011) with one sum of squares per row, for tables of which a step reads few rows.

    sum[r] <- sum[r] + mean(g[r]^2);  row[r] <- row[r] - lr g[r] / sqrt(sum[r])

    A row without a gradient does not change, so sparse and dense gradients give the same result. With sparse
    gradients, the cost of a step does not depend on the size of the table.
    """

    def __init__(self, tables: Iterable[nn.Parameter], *, lr: float):
        super().__init__(tables, {"lr": lr, "capturable": False})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update the rows that have a gradient, and overwrite its values. A sparse gradient must be coalesced."""
        assert closure is None, "RowAdagrad does not recompute the loss"
        for group in self.param_groups:
            for table in (table for table in group["params"] if table.grad is not None):
                if not self.state[table]:
                    self.state[table]["square_sums"] = torch.zeros_like(table[:, 0]).contiguous()
                sums, rows, change = local(self.state[table]["square_sums"]), slice(None), local(table.grad)
                if table.grad.is_sparse:
                    rows, change = table.grad.indices()[0], table.grad.values()
                sums[rows] += torch.linalg.vector_norm(change, dim=1).square() / table.shape[1]
                change.mul_(-group["lr"] / (sums[rows].sqrt() + EPS).unsqueeze(1))
                table.index_add_(0, rows, change) if table.grad.is_sparse else local(table).add_(change)
