"""The operations that a training step needs, and how fast this machine multiplies matrices."""

import statistics
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.turns import seconds_per_call

SECONDS = 0.2  # per measurement


def flops_of(step: Callable[[], Any]) -> float:
    """Floating-point operations of an eager step's matrix products, those of its optimizer included."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:  # fused attention is not counted
        step()
    return counter.get_total_flops()


@cache
def peak_flops_per_second(rows: int, d_model: int, d_ff: int, device: torch.device, dtype: torch.dtype) -> float:
    """The best rate of the products in a model's own forward pass."""
    products = ((d_model, 3 * d_model), (d_model, d_model), (d_model, 2 * d_ff), (d_ff, d_model))
    return max(flops_per_second(rows, *sizes, device, dtype) for sizes in products)


def flops_per_second(rows: int, inner: int, columns: int, device: torch.device, dtype: torch.dtype) -> float:
    """The rate of one product: the median of 5 measurements."""
    left = torch.randn(rows, inner, device=device, dtype=dtype)
    right = torch.randn(inner, columns, device=device, dtype=dtype)
    out = torch.empty(rows, columns, device=device, dtype=dtype)

    def product() -> torch.Tensor:
        return torch.mm(left, right, out=out)

    seconds_per_call(product, 1)  # warms up
    n = max(1, int(SECONDS / seconds_per_call(product, 3)))
    return 2 * rows * inner * columns / statistics.median(seconds_per_call(product, n) for _ in range(5))
