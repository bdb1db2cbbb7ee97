"""Muon (Jordan et al. 2024): every step of a matrix is made orthogonal, so that it moves all directions alike.

The function is that of `torch.optim.Muon`. That one goes matrix by matrix, and always in bfloat16, which processors
without instructions for it compute many times slower; here all matrices of a shape go together, in float32 on a CPU.
"""

from collections.abc import Callable, Iterable

import torch
from torch import nn
from torch.optim import Optimizer

# Of the quintic iteration: chosen for its slope at 0, so that small singular values grow fast. It does not converge:
# after five steps those that were not near 0 lie between 0.7 and 1.2, which serves as well.
A, B, C = 3.4445, -4.7750, 2.0315
STEPS = 5


def orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """The nearest orthogonal matrices, about, to `[n, rows, columns]`: U V^T where a matrix is U S V^T.

    Newton and Schulz's iteration X <- a X + b (X X^T) X + c (X X^T)^2 X, begun with singular values of at most 1.
    Every step is X <- P X with P a polynomial of X X^T, which becomes P (X X^T) P: the product of all P can be had
    from the first X X^T alone.
    """
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if is_tall else matrices  # the products are smaller with the short side first
    if x.device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        x = x.bfloat16()
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    # Of r rows and c columns: 2 c r^2 + 17 r^3 multiplications, in place of 10 c r^2 + 5 r^3. The product of all P is
    # too much for bfloat16's few digits.
    if x.shape[2] >= 2 * x.shape[1] and x.dtype != torch.bfloat16:
        x = _factor(x @ x.mT) @ x
    else:
        for _ in range(STEPS):
            gram = x @ x.mT
            x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
    return x.mT if is_tall else x


def _factor(gram: torch.Tensor) -> torch.Tensor:
    """What the whole iteration multiplies X by, from X X^T, `[n, rows, rows]`."""
    factor = change = _polynomial(gram)
    for _ in range(STEPS - 1):
        gram = change @ gram @ change
        change = _polynomial(gram)
        factor = change @ factor
    return factor


def _polynomial(gram: torch.Tensor) -> torch.Tensor:
    """a I + b G + c G^2."""
    polynomial = torch.baddbmm(gram, gram, gram, beta=B, alpha=C)
    polynomial.diagonal(dim1=1, dim2=2).add_(A)
    return polynomial


class Muon(Optimizer):
    """Momentum, made orthogonal; decoupled weight decay. For matrices between hidden states, and for those alone."""

    def __init__(
        self, matrices: Iterable[nn.Parameter], *, lr: float, weight_decay: float = 0.0, momentum: float = 0.95
    ):
        # `capturable` is PyTorch's name for what a CUDA graph may contain: `lr` may be a tensor on the device.
        defaults = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "capturable": False}
        super().__init__(matrices, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Change every matrix that has a gradient."""
        assert closure is None, "the loss is not computed anew"
        for group in self.param_groups:
            by_shape: dict[torch.Size, tuple[list[torch.Tensor], list[torch.Tensor]]] = {}
            for matrix in group["params"]:
                if matrix.grad is not None:
                    matrices, gradients = by_shape.setdefault(matrix.shape, ([], []))
                    matrices.append(matrix)
                    gradients.append(matrix.grad)
            for matrices, gradients in by_shape.values():
                self._change(matrices, gradients, group["lr"], group["weight_decay"], group["momentum"])

    def _change(
        self,
        matrices: list[torch.Tensor],
        gradients: list[torch.Tensor],
        lr: float | torch.Tensor,
        weight_decay: float,
        momentum: float,
    ) -> None:
        momenta = [self._momentum(matrix) for matrix in matrices]
        torch._foreach_lerp_(momenta, gradients, 1 - momentum)
        updates = orthogonal(torch.stack(torch._foreach_lerp(gradients, momenta, momentum)))  # Nesterov's
        rows, columns = matrices[0].shape
        # A tall matrix has more rows than can be orthogonal and of length 1; a longer step makes up for it.
        rate = lr * max(1.0, rows / columns) ** 0.5
        torch._foreach_mul_(matrices, 1 - lr * weight_decay)
        torch._foreach_sub_(matrices, list((rate * updates.to(matrices[0].dtype)).unbind()))

    def _momentum(self, matrix: torch.Tensor) -> torch.Tensor:
        state = self.state[matrix]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(matrix)
        return state["momentum_buffer"]
