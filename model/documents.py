"""Windows of several documents: which tokens see each other, and where they are in their document.

Models get the number of each token's document in its window, from 1 on, and 0 at padding.
"""

from typing import Any

import torch
from torch import Tensor


def same_document(queries: Tensor, keys: Tensor) -> Tensor:
    """Whether each query and key are in one document, `[batch, 1, n_queries, n_keys]`, from the
    documents' numbers `[batch, n_queries]` and `[batch, n_keys]`. Padding sees itself."""
    return queries[:, None, :, None] == keys[:, None, None, :]


def places_in(is_same: Tensor) -> Tensor:
    """The place of each token in its document, from 0 on, `[batch, 1, seq_len]`, from
    `same_document` of all tokens of windows."""
    return is_same.tril().sum(-1) - 1


def places_after(begins: Tensor, batch: int, seq_len: int) -> Tensor:
    """The place of each token in its document, from 0 on, `[batch, 1, seq_len]`, from the begins of
    the documents `[n]`: see `data.windows.packed`."""
    tokens = torch.arange(batch * seq_len, dtype=begins.dtype, device=begins.device)
    document = torch.searchsorted(begins, tokens, right=True) - 1
    return (tokens - begins[document]).view(batch, 1, seq_len)


def mix_within(query: Tensor, key: Tensor, value: Tensor, begins: Tensor) -> Tensor:
    """Attention within documents, each tensor `[batch, n_heads, seq_len, d_head]`. PyTorch has it on
    CUDA, for bfloat16 and float16."""
    from torch.nn.attention.varlen import varlen_attn

    batch, _, seq_len, _ = query.shape
    q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (query, key, value))
    mixed: Any = varlen_attn(q, k, v, begins, begins, seq_len, seq_len)
    return mixed.unflatten(0, (batch, seq_len)).transpose(1, 2)


def can_mix_within(n_heads: int, d_head: int, device: torch.device) -> bool:
    """Whether `mix_within` and its gradient run on a device."""
    try:
        x = torch.ones(
            1, n_heads, 2, d_head, dtype=torch.bfloat16, device=device
        ).requires_grad_()
        begins = torch.tensor([0, 1, 2, 2], dtype=torch.int32, device=device)
        mix_within(x, x, x, begins).sum().backward()
    except Exception:  # whatever PyTorch raises without a kernel
        return False
    return True


def masks_of(
    documents: Tensor, positions: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The keys that are seen by each query, in the earlier layers and in the last one, which may
    have queries at `positions` only; and the places of all tokens."""
    is_same = same_document(documents, documents)
    is_same_in_last = is_same
    if positions is not None and positions.ndim == 2:
        is_same_in_last = same_document(documents.flatten()[positions], documents)
    return is_same, is_same_in_last, places_in(is_same)
