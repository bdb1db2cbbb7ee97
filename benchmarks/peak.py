"""How fast this machine multiplies matrices, and how many multiplications a training step needs."""

import statistics
import time

import torch

from benchmarks.peers import Shape

LARGE, LARGE_ON_CUDA = 2048, 8192
SECONDS = 0.2  # of products, before the clock is looked at


def flops_per_char(shape: Shape, *, feed_forward_matrices: int, head_flops: float, last: float = 1.0) -> float:
    """Floating-point operations of matrix products that a step needs for each character, recomputation not counted.

    3 * (n_layers * (2 * (4 d^2 + m d d_ff) + 4 L d) - (1 - last) * 2 * (d^2 + m d d_ff) + head): a product with a
    matrix takes 2 operations a weight, the scores and the mixing of attention 2 L d each, and the backward pass twice
    the forward's. `feed_forward_matrices`, m, is 2, or 3 where it is gated; `head_flops` are those of the head's
    forward pass; `last` is the share of the characters at which what follows the last attention is computed.
    """
    d, feed_forward = shape.d_model, feed_forward_matrices * shape.d_model * shape.d_ff
    layer = 2 * (4 * d**2 + feed_forward) + 4 * shape.seq_len * d
    return 3 * (shape.n_layers * layer - (1 - last) * 2 * (d**2 + feed_forward) + head_flops)


def own_shapes(shape: Shape) -> list[tuple[int, int, int]]:
    """The products of the model's own forward pass, as rows, inner size and columns."""
    d, rows = shape.d_model, shape.chars_per_step
    return [(rows, d, 3 * d), (rows, d, d), (rows, d, 2 * shape.d_ff), (rows, shape.d_ff, d)]


def large_shape(device: torch.device) -> tuple[int, int, int]:
    """A product that is as large as products need to be for the machine's best."""
    size = LARGE_ON_CUDA if device.type == "cuda" else LARGE
    return size, size, size


def flops_per_second(rows: int, inner: int, columns: int, device: torch.device, dtype: torch.dtype) -> float:
    """The rate of one product: the median of 5 turns."""
    left = torch.randn(rows, inner, device=device, dtype=dtype)
    right = torch.randn(inner, columns, device=device, dtype=dtype)
    out = torch.empty(rows, columns, device=device, dtype=dtype)
    n = max(1, int(SECONDS / _seconds(left, right, out, 3)))
    return 2 * rows * inner * columns / statistics.median(_seconds(left, right, out, n) for _ in range(5))


def _seconds(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor, n: int) -> float:
    torch.mm(left, right, out=out)
    _wait(out)
    began = time.perf_counter()
    for _ in range(n):
        torch.mm(left, right, out=out)
    _wait(out)
    return (time.perf_counter() - began) / n


def _wait(tensor: torch.Tensor) -> None:
    tensor[0, 0].item()
