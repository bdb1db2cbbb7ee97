"""AdamW, RowAdagrad for tables, and what all optimizers need; `training.muon` has Muon."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

EPS = 1e-10  # avoids 0 / 0 in rows whose gradients have all been 0


def adamw(
    model: nn.Module,
    *,
    learning_rate: float,
    table_learning_rate: float,
    weight_decay: float,
    left_out: Sequence[nn.Parameter] = (),
) -> list[Optimizer]:
    """AdamW (Loshchilov and Hutter 2019) for all parameters that are not `left_out`, and RowAdagrad
    for tables, the weights of `nn.EmbeddingBag`s."""
    tables = [
        module for module in model.modules() if isinstance(module, nn.EmbeddingBag)
    ]
    rows: list[Any] = [table.weight for table in tables]
    ours = [p for p in model.parameters() if p not in {*rows, *left_out}]
    # Weight decay pulls weights to zero, which is right for matrices and wrong for the scales of
    # norms and for biases.
    groups = [
        {"params": [p for p in ours if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in ours if p.ndim < 2], "weight_decay": 0.0},
    ]
    fused = ours[0].device.type != "mps"
    by_adamw = torch.optim.AdamW(
        groups, lr=learning_rate, betas=(0.9, 0.98), fused=fused
    )

    if not tables:
        return [by_adamw]
    for table in tables:
        # Dense on other devices, because counting distinct rows would synchronize; and if sharded.
        is_sharded = type(table.weight) is not nn.Parameter
        table.sparse = table.weight.device.type == "cpu" and not is_sharded
    return [by_adamw, RowAdagrad(rows, lr=table_learning_rate)]


def gradients_of(model: nn.Module) -> list[torch.Tensor]:
    """The gradients of all parameters that have one. Sparse ones are coalesced first, and only
    their rows returned."""
    gradients = []
    for parameter in model.parameters():
        gradient = parameter.grad
        if gradient is None:
            continue
        if gradient.is_sparse:
            # `SumOfRows` has each row once, in order, which autograd forgets
            rows = gradient._indices()[0]
            gradient._coalesced_(bool((rows[1:] > rows[:-1]).all()))
            parameter.grad = gradient.coalesce()
            gradient = parameter.grad.values()
        gradients.append(local(gradient))

    return gradients


def set_learning_rate(optimizers: Sequence[Optimizer], lr_share: float) -> None:
    """Set every learning rate to `lr_share` times its peak."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group.setdefault("peak_lr", group["lr"])
            group["lr"] = group["peak_lr"] * lr_share


def learning_rate_of(optimizers: Sequence[Optimizer]) -> float:
    """The current learning rate of the first optimizer, which trains the embedding."""
    group = optimizers[0].param_groups[0]
    # an optimizer may compute its rate itself
    return group.get("computed_lr", group["lr"])


class RowAdagrad(Optimizer):
    """Adagrad (Duchi et al. 2011) with one sum of squares per row, for tables of which a step reads
    few rows.

    sum[r] <- sum[r] + mean(g[r]^2);  row[r] <- row[r] - lr g[r] / sqrt(sum[r])

    A row without a gradient does not change, so sparse and dense gradients give the same result.
    With sparse gradients, the cost of a step does not depend on the size of the table.
    """

    def __init__(self, tables: Iterable[nn.Parameter], *, lr: float):
        super().__init__(tables, {"lr": lr, "capturable": False})
        # of dense gradients; the compiled one passes over a table once
        self.update_rows: Callable[..., None] = update_rows
        # see `optimize_or_undo`
        self._step_supports_amp_scaling = True
        self.found_inf: torch.Tensor | None = None

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Update the rows that have a gradient. Its values may be overwritten; a sparse gradient
        must be coalesced."""
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is not None:
                    self._update(table, group["lr"])

    def _update(self, table: nn.Parameter, lr: float) -> None:
        state = self.state[table]
        if not state:
            state["square_sums"] = torch.zeros_like(table[:, 0]).contiguous()
        square_sums = local(state["square_sums"])
        gradient: Any = table.grad
        if not gradient.is_sparse:
            rows = local(table).detach()
            self.update_rows(rows, local(gradient), square_sums, lr, self.found_inf)
            return

        numbers = gradient.indices()[0]
        changes = gradient.values()
        if self.found_inf is not None:
            changes.masked_fill_(self.found_inf > 0, 0.0)
        square_sums[numbers] += mean_squares(changes)
        table.index_add_(0, numbers, changes.mul_(rates(square_sums[numbers], lr)))


def mean_squares(changes: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vector_norm(changes, dim=1).square() / changes.shape[1]


def rates(square_sums: torch.Tensor, lr: float | torch.Tensor) -> torch.Tensor:
    return -lr / (square_sums.sqrt() + EPS).unsqueeze(1)


def update_rows(
    rows: torch.Tensor,
    changes: torch.Tensor,
    square_sums: torch.Tensor,
    lr: float | torch.Tensor,
    found_inf: torch.Tensor | None,
) -> None:
    """Update all `rows` `[n, length]` of a table and their `square_sums` `[n]`, in place."""
    if found_inf is not None:
        changes = torch.where(found_inf > 0, 0.0, changes)
    square_sums += mean_squares(changes)
    rows.addcmul_(changes, rates(square_sums, lr))


def local(tensor: Any) -> torch.Tensor:
    """The part of a sharded tensor that this process has; any other tensor as it is."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor
