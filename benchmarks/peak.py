"""The operations that a training step needs, and how fast this machine multiplies matrices."""

import statistics

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.peers import Shape, Step
from benchmarks.turns import seconds_per_call

LARGE, LARGE_ON_CUDA = 2048, 8192  # rows and columns that reach the machine's best rate
SECONDS = 0.2  # per measurement


def flops_per_char(step: Step, shape: Shape) -> float:
    """Floating-point operations of an eager step's matrix products per character, those of its optimizer included."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:  # fused attention is not counted
        step()
    return counter.get_total_flops() / shape.chars_per_step


def peak_flops_per_second(shape: Shape, device: torch.device, dtype: torch.dtype) -> dict[str, float]:
    """The best rate of the products in the model's own forward pass, and that of a large product."""
    d, rows = shape.d_model, shape.chars_per_step
    own = ((rows, d, 3 * d), (rows, d, d), (rows, d, 2 * shape.d_ff), (rows, shape.d_ff, d))
    large = (LARGE_ON_CUDA if device.type == "cuda" else LARGE,) * 3
    return {
        "own shapes": max(flops_per_second(*sizes, device, dtype) for sizes in own),
        "large": flops_per_second(*large, device, dtype),
    }


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
