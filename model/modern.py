"""The `modern` encoder: without n-grams, a bidirectional transformer that Hugging Face's ModernBERT can express.

Embedding and norm; pre-norm layers (Xiong et al. 2020) with full attention, rotary positions (Su et al. 2021) and GeGLU
(Shazeer 2020); a final norm. Layer 0 has no attention norm, because the embedding's norm comes right before it. No
biases. The whole follows ModernBERT (Warner et al. 2024).
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.embedding import Embedding
from model.ngrams import NgramEmbedding

NORM_EPS = 1e-5
ROTARY_BASE = 10_000.0


class Context(NamedTuple):
    """The rotation of a window's positions, and which of them are text."""

    cos: Tensor  # [seq_len, d_head]
    sin: Tensor
    mask: Tensor | None = None  # [batch, 1, 1, seq_len], False at padding


# Vectors [batch, n, d_model] that attend in place of a window's own, and the cosines and sines of their positions
Queries = tuple[Tensor, Tensor, Tensor]


def rotary_table(seq_len: int, d_head: int, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    """Cosines and sines `[seq_len, d_head]` of the angles position * base^(-2i / d_head), each i twice."""
    frequencies = ROTARY_BASE ** -(torch.arange(0, d_head, 2, device=device, dtype=torch.float32) / d_head)
    angles = torch.outer(torch.arange(seq_len, device=device, dtype=torch.float32), frequencies).repeat(1, 2)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate queries or keys `[..., seq_len, d_head]`, so that their dot products depend on distances only."""
    first, second = x.chunk(2, dim=-1)
    return x * cos.to(x.dtype) + torch.cat([-second, first], dim=-1) * sin.to(x.dtype)


def linear(n_in: int, n_out: int, is_zero: bool = False) -> nn.Linear:
    """A matrix without bias. Normal weights of standard deviation 1/sqrt(n_in) preserve a vector's scale; with zeros at
    the end of its branches, a layer starts as the identity."""
    layer = nn.Linear(n_in, n_out, bias=False)
    if is_zero:
        nn.init.zeros_(layer.weight)
    else:
        nn.init.normal_(layer.weight, std=n_in**-0.5)
    return layer


class Attention(nn.Module):
    """Multi-head self-attention in both directions: every position sees every other."""

    def __init__(self, d_model: int, n_heads: int, dropout: float):
        super().__init__()
        self.n_heads, self.d_head = n_heads, d_model // n_heads
        self.dropout = dropout
        self.query_key_value = linear(d_model, 3 * d_model)
        self.output = linear(d_model, d_model, is_zero=True)

    def forward(self, x: Tensor, context: Context, queries: Queries | None = None) -> Tensor:
        """Attention to `x` `[batch, seq_len, d_model]`, from its own vectors or from `queries`."""
        query, key, value = self.rotated(x, context, queries)
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, context.mask, dropout_p=dropout)
        return self.output(mixed.transpose(1, 2).flatten(2))

    def rotated(self, x: Tensor, context: Context, queries: Queries | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries `[batch, n_heads, n, d_head]` and keys, and values `[batch, n_heads, seq_len, d_head]`."""
        if queries is None:
            (query, key, value), cos, sin = self.heads(self.query_key_value(x)), context.cos, context.sin
        else:
            vectors, cos, sin = queries
            to_query, to_key_value = self.query_key_value.weight.split([x.shape[-1], 2 * x.shape[-1]])
            (query,), (key, value) = self.heads(F.linear(vectors, to_query)), self.heads(F.linear(x, to_key_value))
        return rotate(query, cos, sin), rotate(key, context.cos, context.sin), value

    def heads(self, x: Tensor) -> tuple[Tensor, ...]:
        """The parts of `[batch, n, n_parts * d_model]`, each `[batch, n_heads, n, d_head]`."""
        return x.unflatten(-1, (-1, self.n_heads, self.d_head)).permute(2, 0, 3, 1, 4).unbind()


class GeGLU(nn.Module):
    """The gated feed-forward: output(GELU(x W) * (x V)), with W and V in one matrix."""

    def __init__(self, d_model: int, d_ff: int):
        super().__init__()
        self.input_gate = linear(d_model, 2 * d_ff)
        self.output = linear(d_ff, d_model, is_zero=True)

    def forward(self, x: Tensor) -> Tensor:
        hidden, gate = self.input_gate(x).chunk(2, dim=-1)
        return self.output(F.gelu(hidden) * gate)


class Layer(nn.Module):
    """Attention, then the feed-forward; each reads the normed residual stream and is added to it."""

    def __init__(self, d_model: int, n_heads: int, d_ff: int, dropout: float, is_first: bool):
        super().__init__()
        self.attention_norm = nn.Identity() if is_first else nn.LayerNorm(d_model, eps=NORM_EPS, bias=False)
        self.attention = Attention(d_model, n_heads, dropout)
        self.feed_forward_norm = nn.LayerNorm(d_model, eps=NORM_EPS, bias=False)
        self.feed_forward = GeGLU(d_model, d_ff)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Tensor, context: Context, queries: Queries | None = None, positions: Tensor | None = None
    ) -> Tensor:
        """The next vectors of `x` `[batch, seq_len, d_model]`, or of `queries`; with `positions`, only those there."""
        residual, normed = x, self.attention_norm(x)
        if queries is not None:
            residual, cos, sin = queries
            queries = self.attention_norm(residual), cos, sin
        x = residual + self.dropout(self.attention(normed, context, queries))
        x = x if positions is None else x.flatten(0, 1)[positions]
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))


class ModernEncoder(nn.Module):
    """Token ids `[batch, seq_len]` to vectors `[batch, seq_len, d_model]`, for windows of any length."""

    def __init__(
        self,
        *,
        n_tokens: int,
        d_model: int,
        n_layers: int,
        n_heads: int,
        d_ff: int,
        dropout: float = 0.0,
        ngrams: NgramEmbedding | None = None,
    ):
        """`n_heads` divides `d_model` into heads of an even size."""
        super().__init__()
        self.d_head = d_model // n_heads
        self.embedding = Embedding(n_tokens, d_model)
        self.embedding_norm = nn.LayerNorm(d_model, eps=NORM_EPS, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(Layer(d_model, n_heads, d_ff, dropout, is_first=i == 0) for i in range(n_layers))
        self.final_norm = nn.LayerNorm(d_model, eps=NORM_EPS, bias=False)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.ngrams = ngrams

    def forward(
        self, inputs: Tensor, positions: Tensor | None = None, attention_mask: Tensor | None = None, **further: Tensor
    ) -> Tensor:
        """`attention_mask` `[batch, seq_len]` is False at padding, which follows the text of a shorter window. Other
        positions get the vectors that the text has alone; those of padding have no meaning.

        With `positions`, indices into `inputs.flatten()`, only the vectors there are returned: `[n, d_model]`, or
        `[batch, n, d_model]` for `[batch, n]`, with which the last attention too has queries only there.

        The vectors of n-grams join before the last layer, only at the predicted positions: the other layers, and the
        keys and values of the last one, do not see them. So they cost little, and the other layers learn without them.
        """
        ngrams = None if self.ngrams is None else self.ngrams(inputs, positions, attention_mask)  # compiling stops here
        x = self.dropout(self.embedding_norm(self.embedded(inputs, **further)))
        cos, sin = rotary_table(x.shape[1], self.d_head, x.device)
        context = Context(cos, sin, None if attention_mask is None else attention_mask[:, None, None])
        for layer in self.layers[:-1]:
            x = layer(x, context)
        residual = x
        if positions is not None and positions.ndim == 2:
            columns = positions.unsqueeze(1) % x.shape[1]
            residual, cos, sin, positions = x.flatten(0, 1)[positions], cos[columns], sin[columns], None
        if ngrams is not None:
            residual = residual + self.dropout(ngrams)
        queries = None if residual is x else (residual, cos, sin)
        return self.final_norm(self.layers[-1](x, context, queries, positions))

    def embedded(self, inputs: Tensor) -> Tensor:
        """The vectors of tokens that the layers begin with, before the norm, `[batch, seq_len, d_model]`."""
        return self.embedding(inputs)
