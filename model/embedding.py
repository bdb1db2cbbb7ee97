"""Token embedding whose gradient is deterministic, compiled or not."""

import zlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@torch.library.custom_op("folio::embedding_gradient", mutates_args=())
def embedding_gradient(gradient: Tensor, tokens: Tensor, n_tokens: int) -> Tensor:
    """The sum of the vectors of `gradient` `[..., d_model]` per token of `tokens` `[...]`:
    `[n_tokens, d_model]`.

    A custom operation, because code that torch.compile generates adds in the order in which threads
    arrive. PyTorch's own kernel on CUDA does so too if few tokens occur often, unless deterministic
    algorithms are requested.
    """
    mode = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("error")
    try:
        return torch.ops.aten.embedding_dense_backward(
            gradient.contiguous(), tokens, n_tokens, -1, False
        )
    finally:
        torch.set_deterministic_debug_mode(mode)


@embedding_gradient.register_fake
def _(gradient: Tensor, tokens: Tensor, n_tokens: int) -> Tensor:
    return gradient.new_empty(n_tokens, gradient.shape[-1])


# torch.compile caches code under the names of its operations, whatever their gradients: the name
# has a checksum.
_VERSION = f"{zlib.crc32(Path(__file__).read_bytes()):08x}"


@torch.library.custom_op(f"folio::lookup_{_VERSION}", mutates_args=())
def lookup(table: Tensor, tokens: Tensor) -> Tensor:
    """The rows of `table` `[n_tokens, d_model]` for `tokens` `[...]`: `[..., d_model]`. A custom
    operation, because torch.compile does not cache code with a `torch.autograd.Function`."""
    return F.embedding(tokens, table)


@lookup.register_fake
def _(table: Tensor, tokens: Tensor) -> Tensor:
    return table.new_empty(*tokens.shape, table.shape[1])


def _save(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.n_tokens = len(inputs[0])
    ctx.save_for_backward(inputs[1])


def _gradients(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
    return embedding_gradient(gradient, *ctx.saved_tensors, ctx.n_tokens), None


lookup.register_autograd(_gradients, setup_context=_save)


class Embedding(nn.Embedding):
    """`nn.Embedding` with a deterministic gradient; its options have no effect."""

    def forward(self, tokens: Tensor) -> Tensor:
        # Without gradients there is nothing to make deterministic, and exporters do not know
        # `lookup`.
        return (
            lookup(self.weight, tokens)
            if torch.is_grad_enabled()
            else F.embedding(tokens, self.weight)
        )
