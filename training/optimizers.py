"""The optimizers: Muon with AdamW, AdamW alone, or labml_nn's Noam. The first two update tables row by row."""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import nn
from torch.optim import Optimizer

# Coefficients of the quintic iteration (Jordan et al. 2024). Their steep slope at 0 makes small singular values grow
# fast. The iteration does not converge: after five steps, singular values that were not near 0 are between 0.7 and 1.2.
A, B, C = 3.4445, -4.7750, 2.0315
STEPS = 5
EPS = 1e-10  # avoids 0 / 0 in rows whose gradients have all been 0


def muon(
    model: nn.Module,
    *,
    learning_rate: float,
    muon_learning_rate: float,
    muon_momentum: float,
    table_learning_rate: float,
    weight_decay: float,
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
        Muon(matrices, lr=muon_learning_rate, momentum=muon_momentum, weight_decay=weight_decay),
        *by_row,
    ]


def adamw(
    model: nn.Module, *, learning_rate: float, table_learning_rate: float, weight_decay: float
) -> list[Optimizer]:
    """RowAdagrad for tables, AdamW (Loshchilov and Hutter 2019) for all other parameters."""
    by_row, others = _split_off_tables(model, table_learning_rate)
    return [_adamw(others, learning_rate, weight_decay), *by_row]


def noam(model: nn.Module, *, learning_rate: float, d_model: int) -> list[Optimizer]:
    """labml_nn's Noam with its own defaults (2,000 warmup steps), as in the annotated experiment.

    lr = learning_rate * d_model^-0.5 * min(step^-0.5, step * 2000^-1.5)   (Vaswani et al. 2017)
    """
    from labml_nn.optimizers import WeightDecay
    from labml_nn.optimizers.noam import Noam

    return [
        Noam(
            model.parameters(),
            lr=learning_rate,
            betas=(0.9, 0.999),
            eps=1e-8,
            weight_decay=WeightDecay(0.0, True, False),
            warmup=2_000,
            d_model=d_model,
        )
    ]


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
        bag.sparse = bag.weight.device.type == "cpu"
    is_table = {id(bag.weight) for bag in bags}
    tables = [p for p in model.parameters() if id(p) in is_table]
    others = [p for p in model.parameters() if id(p) not in is_table]
    return [RowAdagrad(tables, lr=learning_rate)] if tables else [], others


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
                    self.state[table]["square_sums"] = table.new_zeros(len(table))
                sums, rows, change = self.state[table]["square_sums"], slice(None), table.grad
                if table.grad.is_sparse:
                    rows, change = table.grad.indices()[0], table.grad.values()
                sums[rows] += torch.linalg.vector_norm(change, dim=1).square() / table.shape[1]
                change.mul_(-group["lr"] / (sums[rows].sqrt() + EPS).unsqueeze(1))
                table.index_add_(0, rows, change) if table.grad.is_sparse else table.add_(change)


class Muon(Optimizer):
    """Momentum with orthogonal updates (Jordan et al. 2024) and decoupled weight decay, for matrices only.

    Computes the function of `torch.optim.Muon`. That one updates one matrix at a time and always in bfloat16, which is
    many times slower on processors without bfloat16 instructions. This one updates all matrices of a shape together,
    and in float32 on a CPU.
    """

    def __init__(
        self, matrices: Iterable[nn.Parameter], *, lr: float, weight_decay: float = 0.0, momentum: float = 0.95
    ):
        # `capturable` is PyTorch's name for optimizers that a CUDA graph can record: `lr` may be a tensor.
        defaults = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "capturable": False}
        super().__init__(matrices, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every matrix that has a gradient."""
        assert closure is None, "Muon does not recompute the loss"
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[torch.Tensor]] = {}
            for matrix in group["params"]:
                if matrix.grad is not None:
                    by_shape.setdefault(matrix.shape, []).append(matrix)
            for matrices in by_shape.values():
                self._update(matrices, group["lr"], group["weight_decay"], group["momentum"])

    def _update(
        self, matrices: list[torch.Tensor], lr: float | torch.Tensor, weight_decay: float, momentum: float
    ) -> None:
        gradients = [matrix.grad for matrix in matrices if matrix.grad is not None]
        for matrix in matrices:
            if not self.state[matrix]:
                self.state[matrix]["momentum_buffer"] = torch.zeros_like(matrix)
        momenta = [self.state[matrix]["momentum_buffer"] for matrix in matrices]
        torch._foreach_lerp_(momenta, gradients, 1 - momentum)
        updates = orthogonal(torch.stack(torch._foreach_lerp(gradients, momenta, momentum)))  # Nesterov momentum
        rows, columns = matrices[0].shape
        # Not all rows of a tall matrix can be orthogonal and of length 1; a longer step makes up for that.
        rate = lr * max(1.0, rows / columns) ** 0.5
        torch._foreach_mul_(matrices, 1 - lr * weight_decay)
        torch._foreach_sub_(matrices, list((rate * updates.to(matrices[0].dtype)).unbind()))


def orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """Approximate the nearest orthogonal matrices to `[n, rows, columns]`: U V^T for a matrix U S V^T.

    The Newton-Schulz iteration X <- a X + b (X X^T) X + c (X X^T)^2 X, starting with singular values of at most 1.
    Each step is X <- P X with a polynomial P of X X^T, and X X^T then becomes P (X X^T) P. So the product of all P
    can be computed from the first X X^T alone.
    """
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if is_tall else matrices  # products are smaller with the short side first
    if x.device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        x = x.bfloat16()
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    # For r rows and c columns: 2 c r^2 + 17 r^3 multiplications instead of 10 c r^2 + 5 r^3. bfloat16 has too few
    # digits for the product of all P.
    if x.shape[2] >= 2 * x.shape[1] and x.dtype != torch.bfloat16:
        x = _factor(x @ x.mT) @ x
    else:
        for _ in range(STEPS):
            gram = x @ x.mT
            x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
    return x.mT if is_tall else x


def _factor(gram: torch.Tensor) -> torch.Tensor:
    """The product of all P, from X X^T `[n, rows, rows]`."""
    factor = polynomial = _polynomial(gram)
    for _ in range(STEPS - 1):
        gram = polynomial @ gram @ polynomial
        polynomial = _polynomial(gram)
        factor = polynomial @ factor
    return factor


def _polynomial(gram: torch.Tensor) -> torch.Tensor:
    """a I + b G + c G^2 for G = `gram`."""
    polynomial = torch.baddbmm(gram, gram, gram, beta=B, alpha=C)
    polynomial.diagonal(dim1=1, dim2=2).add_(A)
    return polynomial
