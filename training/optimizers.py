"""AdamW, RowAdagrad for tables, and what all optimizers need; `training.muon` has Muon."""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import nn
from torch.optim import Optimizer

from training.muon import local

EPS = 1e-10  # avoids 0 / 0 in rows whose gradients have all been 0


def adamw(
    model: nn.Module,
    *,
    learning_rate: float,
    table_learning_rate: float,
    weight_decay: float,
    left_out: Sequence[nn.Parameter] = (),
) -> list[Optimizer]:
    """AdamW (Loshchilov and Hutter 2019) for all parameters that are not `left_out`, except that
    tables, the weights of `nn.EmbeddingBag`s, have RowAdagrad.

    On a CPU the gradients of tables become sparse. On other devices they stay dense: counting
    distinct rows would synchronize.
    """
    bags = [module for module in model.modules() if isinstance(module, nn.EmbeddingBag)]
    # PyTorch 2.11 warns of what is not chosen
    torch.sparse.check_sparse_tensor_invariants.disable()
    for bag in bags:
        # not a sharded tensor
        bag.sparse = bag.weight.device.type == "cpu" and type(bag.weight) is nn.Parameter
    by_row = {id(bag.weight) for bag in bags}
    tables = [p for p in model.parameters() if id(p) in by_row]
    others = [p for p in model.parameters() if id(p) not in by_row | {id(p) for p in left_out}]
    # Weight decay pulls weights to zero, which is right for matrices and wrong for the scales of
    # norms and for biases.
    groups = [
        {"params": [p for p in others if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in others if p.ndim < 2], "weight_decay": 0.0},
    ]
    fused = others[0].device.type != "mps"
    found: list[Optimizer] = [
        torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.98), fused=fused)
    ]
    return [*found, RowAdagrad(tables, lr=table_learning_rate)] if tables else found


def gradients_of(model: nn.Module) -> list[torch.Tensor]:
    """The gradients of all parameters that have one. Sparse ones are coalesced first, and only
    their rows returned."""
    gradients = []
    for parameter in model.parameters():
        if parameter.grad is not None:
            if parameter.grad.is_sparse:
                rows = parameter.grad._indices()[0]  # `SumOfRows` sorts them; autograd forgets that
                is_sum = bool((rows[1:] > rows[:-1]).all())
                parameter.grad = (
                    parameter.grad._coalesced_(True) if is_sum else parameter.grad.coalesce()
                )
            gradients.append(
                parameter.grad.values() if parameter.grad.is_sparse else local(parameter.grad)
            )
    return gradients


def set_learning_rate(optimizers: Sequence[Optimizer], factor: float) -> None:
    """Set every learning rate to `factor` times its peak."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group.setdefault("peak_lr", group["lr"])
            group["lr"] = group["peak_lr"] * factor


def learning_rate_of(optimizers: Sequence[Optimizer]) -> float:
    """The current learning rate of the first optimizer, which trains the embedding."""
    group = optimizers[0].param_groups[0]
    return group.get("computed_lr", group["lr"])  # an optimizer may compute its rate itself


class RowAdagrad(Optimizer):
    """Adagrad (Duchi et al. 2011) with one sum of squares per row, for tables of which a step reads
    few rows.

    sum[r] <- sum[r] + mean(g[r]^2);  row[r] <- row[r] - lr g[r] / sqrt(sum[r])

    A row without a gradient does not change, so sparse and dense gradients give the same result.
    With sparse gradients, the cost of a step does not depend on the size of the table.
    """

    def __init__(self, tables: Iterable[nn.Parameter], *, lr: float):
        super().__init__(tables, {"lr": lr, "capturable": False})
        self._step_supports_amp_scaling, self.found_inf = (
            True,
            None,
        )  # see `training.callbacks.health_checks`

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update the rows that have a gradient. Its values may be overwritten; a sparse gradient
        must be coalesced."""
        assert closure is None, "RowAdagrad does not recompute the loss"
        for group in self.param_groups:
            for table in (table for table in group["params"] if table.grad is not None):
                if not self.state[table]:
                    self.state[table]["square_sums"] = torch.zeros_like(table[:, 0]).contiguous()
                sums, rows, change = (
                    local(self.state[table]["square_sums"]),
                    slice(None),
                    local(table.grad),
                )
                if table.grad.is_sparse:
                    rows, change = table.grad.indices()[0], table.grad.values()
                if self.found_inf is not None:
                    change.masked_fill_(self.found_inf > 0, 0.0)
                sums[rows] += torch.linalg.vector_norm(change, dim=1).square() / table.shape[1]
                rates = -group["lr"] / (sums[rows].sqrt() + EPS).unsqueeze(1)
                if table.grad.is_sparse:
                    table.index_add_(0, rows, change.mul_(rates))
                else:
                    local(table).addcmul_(change, rates)
