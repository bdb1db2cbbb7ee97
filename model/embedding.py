"""The embedding: a row of a table for every token, with a gradient that is the same each time."""

import torch
from torch import nn
from torch.nn import functional as F


@torch.library.custom_op("folio::embedding_gradient", mutates_args=())
def embedding_gradient(gradient: torch.Tensor, tokens: torch.Tensor, n_tokens: int) -> torch.Tensor:
    """The sum of the rows of `gradient` `[..., d_model]` for every token of `tokens` `[...]`: `[n_tokens, d_model]`.

    PyTorch's own, as an operation that torch.compile leaves as it is. What it would write for it adds in whichever
    order its threads arrive, and sums of floats depend on the order: no two runs would end alike.
    """
    return torch.ops.aten.embedding_dense_backward(gradient.contiguous(), tokens, n_tokens, -1, False)


@embedding_gradient.register_fake
def _(gradient: torch.Tensor, tokens: torch.Tensor, n_tokens: int) -> torch.Tensor:
    return gradient.new_empty(n_tokens, gradient.shape[-1])


class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(tokens)
        ctx.n_tokens = len(table)
        return F.embedding(tokens, table)

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[no-untyped-def]
        (tokens,) = ctx.saved_tensors
        return embedding_gradient(gradient, tokens, ctx.n_tokens), None


class Embedding(nn.Embedding):
    """`nn.Embedding` without its options, whose gradient is the same each time, compiled too."""

    def __init__(self, n_tokens: int, d_model: int):
        super().__init__(n_tokens, d_model)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return _Lookup.apply(self.weight, tokens)
