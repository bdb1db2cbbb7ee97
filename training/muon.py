"""Muon: momentum with orthogonal updates, for matrices."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from runs.hardware import processor
from training.optimizers import local

# Coefficients of the quintic iteration (Jordan et al. 2024). Their steep slope at 0 makes small
# singular values grow fast. The iteration does not converge: after five steps, singular values that
# were not near 0 are between 0.7 and 1.2.
A = 3.4445
B = -4.7750
C = 2.0315
STEPS = 5
# Whether products in bfloat16 are faster. Intel's instructions of AVX-512 for them are slower than
# those for float32; only AMX is faster there. Here, because torch.compile cannot trace the calls.
CPU_HAS_BFLOAT16 = torch.cpu._is_amx_tile_supported() or (
    torch.cpu._is_avx512_bf16_supported() and "Intel" not in processor()
)


class Muon(Optimizer):
    """Momentum with orthogonal updates (Jordan et al. 2024) and decoupled weight decay, for
    matrices only.

    Computes the same as `torch.optim.Muon`, which updates one matrix at a time and always in
    bfloat16. That is many times slower on processors without bfloat16 instructions. This one
    updates all matrices of a shape together, and in bfloat16 only where that is faster.

    Unlike there, a parameter may hold several matrices, one below the other (`n_parts`). Each gets an
    orthogonal update of its own, such as the query matrix of a head.
    """

    def __init__(
        self,
        matrices: Iterable[nn.Parameter],
        *,
        lr: float,
        weight_decay: float = 0.0,
        momentum: float = 0.95,
        n_parts: Mapping[torch.Tensor, int] | None = None,
    ):
        """`n_parts` has the number of matrices that are stored in one, with equally many rows each;
        it is 1 for all others."""
        defaults = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum}
        # `capturable` is PyTorch's name for optimizers that a CUDA graph can record: `lr` may be a
        # tensor.
        super().__init__(matrices, defaults | {"capturable": False})
        self.n_parts = n_parts or {}
        # see `optimize_or_undo`
        self._step_supports_amp_scaling = True
        self.found_inf: torch.Tensor | None = None

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Update every matrix that has a gradient."""
        for group in self.param_groups:
            alike: dict[tuple[torch.Size, int], list[torch.Tensor]] = {}
            for matrix in group["params"]:
                if matrix.grad is not None:
                    key = (matrix.shape, self.parts_of(matrix))
                    alike.setdefault(key, []).append(matrix)
            for matrices in alike.values():
                self.average(matrices, group["momentum"])
                self.update(matrices, group)

    def parts_of(self, matrix: torch.Tensor) -> int:
        return self.n_parts.get(matrix, 1)

    def average(self, matrices: list[torch.Tensor], momentum: float) -> None:
        """Update the moving averages of the gradients."""
        for matrix in matrices:
            if not self.state[matrix]:
                self.state[matrix]["momentum_buffer"] = torch.zeros_like(matrix)

        averages = self.averages(matrices)
        gradients = [local(matrix.grad) for matrix in matrices]
        if self.found_inf is not None:
            # A skipped step does not change the averages: each one is averaged with itself, because
            # it takes the place of the gradient.
            is_skipped = self.found_inf > 0
            for average, gradient in zip(averages, gradients, strict=True):
                torch.where(is_skipped, average, gradient, out=gradient)

        torch._foreach_lerp_(averages, gradients, 1 - momentum)

    def averages(self, matrices: list[torch.Tensor]) -> list[torch.Tensor]:
        """The moving averages of the gradients."""
        return [local(self.state[matrix]["momentum_buffer"]) for matrix in matrices]

    def directions(self, matrices: list[torch.Tensor], momentum: float) -> torch.Tensor:
        """The next directions `[n, rows, columns]` of matrices of one shape: Nesterov momentum."""
        gradients = [local(matrix.grad) for matrix in matrices]
        return torch.stack(
            torch._foreach_lerp(gradients, self.averages(matrices), momentum)
        )

    def update(self, matrices: list[torch.Tensor], group: dict[str, Any]) -> None:
        directions = self.directions(matrices, group["momentum"])
        updates = orthogonal_parts(directions, self.parts_of(matrices[0]))
        self.apply(matrices, updates, group)

    def apply(
        self, matrices: list[torch.Tensor], updates: torch.Tensor, group: dict[str, Any]
    ) -> None:
        """Add orthogonal `updates` `[n, rows, columns]` to matrices of one shape."""
        lr = group["lr"]
        if self.found_inf is not None:
            lr = lr * (1.0 - self.found_inf)  # 0: skipped
        # Not all rows of a tall matrix can be orthogonal and of length 1; a longer step makes up
        # for that.
        rows, columns = matrices[0].shape
        rows_of_part = rows / self.parts_of(matrices[0])
        rate = lr * max(1.0, rows_of_part / columns) ** 0.5
        parts = [local(matrix) for matrix in matrices]
        torch._foreach_mul_(parts, 1 - lr * group["weight_decay"])
        torch._foreach_sub_(parts, list(updates.to(parts[0].dtype).mul_(rate).unbind()))


def orthogonal_parts(matrices: torch.Tensor, n_parts: int) -> torch.Tensor:
    """`orthogonal` for each of the `n_parts` matrices in the rows of each one of `[n, rows,
    columns]`."""
    parts = matrices.unflatten(1, (n_parts, -1)).flatten(0, 1)
    return orthogonal(parts).unflatten(0, (-1, n_parts)).flatten(1, 2)


def orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """Approximate the nearest orthogonal matrices to `[n, rows, columns]`: U V^T for a matrix U S
    V^T.

    The Newton-Schulz iteration X <- a X + b (X X^T) X + c (X X^T)^2 X, starting with singular
    values of at most 1. Each step is X <- P X with a polynomial P of X X^T, and X X^T then becomes
    P (X X^T) P. So the product of all P can be computed from the first X X^T alone.
    """
    is_tall = matrices.shape[1] > matrices.shape[2]
    # products are smaller with the short side first
    x = matrices.mT if is_tall else matrices
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)

    is_large = x.shape[1] >= 256  # 128 gains little
    if has_bfloat16(x.device) and (is_large or x.is_cuda):
        x = x.bfloat16()
    # For r rows and c columns: 2 c r^2 + 17 r^3 multiplications instead of 10 c r^2 + 5 r^3.
    # bfloat16 has too few digits for the product of all P.
    if x.shape[2] >= 2 * x.shape[1] and x.dtype != torch.bfloat16:
        x = _factor(x @ x.mT) @ x
    else:
        for _ in range(STEPS):
            gram = x @ x.mT
            polynomial = torch.baddbmm(gram, gram, gram, beta=B, alpha=C)
            x = torch.baddbmm(x, polynomial, x, beta=A)

    return x.mT if is_tall else x


def has_bfloat16(device: torch.device) -> bool:
    """Whether a device has fast instructions for bfloat16."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and CPU_HAS_BFLOAT16


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
