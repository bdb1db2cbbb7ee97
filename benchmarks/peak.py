"""The operations that a training step needs, and how fast this machine multiplies matrices."""

import statistics

import torch

from benchmarks.peers import MASKING_PROB, Shape
from benchmarks.turns import seconds_per_call

LARGE, LARGE_ON_CUDA = 2048, 8192  # rows and columns that reach the machine's best rate
SECONDS = 0.2  # per measurement


def flops_per_char(shape: Shape, step: str, n_tokens: int) -> float:
    """Floating-point operations of a step's matrix products per character, without recomputation.

    A product takes 2 operations per weight, attention 2 * seq_len * d each for scores and mixing, and the backward pass
    twice as many as the forward pass. A feed-forward layer has 2 matrices, or 3 with the gate of Folio and ModernBERT.
    These two compute the head at the masked characters only. Folio also computes the queries of its last attention, and
    everything after them, only there. All heads but the annotated one have a layer more.
    """
    d, is_folio = shape.d_model, step.startswith("Folio")
    is_modern = is_folio or step.endswith("ModernBERT")
    last = MASKING_PROB if is_folio else 1.0
    feed_forward = (3 if is_modern else 2) * d * shape.d_ff
    head = (MASKING_PROB if is_modern else 1.0) * (2 * d * n_tokens + (0 if step == "annotated" else 2 * d**2))
    layer = 2 * (4 * d**2 + feed_forward) + 4 * shape.seq_len * d
    left_out = (1 - last) * (2 * (2 * d**2 + feed_forward) + 4 * shape.seq_len * d)  # in Folio's last layer
    return 3 * (shape.n_layers * layer - left_out + head)


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
