"""The `modern` encoder: without n-grams, a bidirectional transformer that Hugging Face's ModernBERT
can express.

Embedding and norm; pre-norm layers (Xiong et al. 2020) with full attention, rotary positions (Su et
al. 2021) and GeGLU (Shazeer 2020); a final norm. Layer 0 has no attention norm, because the
embedding's norm comes right before it. No biases. The whole follows ModernBERT (Warner et al.
2024).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.documents import masks_of, mix_within, places_after
from model.embedding import Embedding
from model.ngrams import NgramEmbedding

NORM_EPS = 1e-5
ROTARY_BASE = 10_000.0


def rotary_table(
    seq_len: int, d_head: int, device: torch.device | None = None
) -> Tensor:
    """Cosines and sines of the angles position * base^(-2i / d_head), each i twice, `[2, seq_len,
    d_head]`."""
    frequencies = ROTARY_BASE ** -(
        torch.arange(0, d_head, 2, device=device).float() / d_head
    )
    angles = torch.outer(
        torch.arange(seq_len, device=device).float(), frequencies
    ).repeat(1, 2)
    return torch.stack([angles.cos(), angles.sin()])


def rotate(x: Tensor, rotary: Tensor) -> Tensor:
    """Rotate queries or keys `[..., seq_len, d_head]`, so that their dot products depend on
    distances only."""
    cos, sin = rotary.to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


def linear(n_in: int, n_out: int, is_zero: bool = False) -> nn.Linear:
    """A matrix without bias. Normal weights of standard deviation 1/sqrt(n_in) preserve a vector's
    scale; with zeros at the end of its branches, a layer starts as the identity."""
    layer = nn.Linear(n_in, n_out, bias=False)
    if is_zero:
        nn.init.zeros_(layer.weight)
    else:
        nn.init.normal_(layer.weight, std=n_in**-0.5)
    return layer


def norm(d_model: int) -> nn.LayerNorm:
    return nn.LayerNorm(d_model, eps=NORM_EPS, bias=False)


def select(x: Tensor, positions: Tensor | None) -> Tensor:
    """The vectors of `x` `[batch, seq_len, d_model]` at `positions`, indices into its flattened
    windows; or all."""
    return x if positions is None else x.flatten(0, 1)[positions]


def mix(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout: float,
    scale: float | None = None,  # of the products; None: d_head^-0.5
) -> Tensor:
    """Scaled dot-product attention. Autocast on CPUs skips it: PyTorch's gradient is ten times
    slower in bfloat16."""
    if torch.is_autocast_enabled("cpu"):
        with torch.autocast("cpu", enabled=False):
            return mix(query.float(), key.float(), value.float(), mask, dropout, scale)
    return F.scaled_dot_product_attention(
        query, key, value, mask, dropout_p=dropout, scale=scale
    )


class Attention(nn.Module):
    """Multi-head self-attention in both directions: every position sees every other of its
    document."""

    def __init__(self, d_model: int, n_heads: int, dropout: float):
        super().__init__()
        self.n_heads = n_heads
        self.dropout = dropout
        self.query_key_value = linear(d_model, 3 * d_model)
        self.output = linear(d_model, d_model, is_zero=True)

    def forward(
        self,
        x: Tensor,
        rotary: Tensor,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Attention at all positions, or at `positions` only. With `[batch, n]`, other positions
        have no queries.

        A query does not see keys where `mask` `[batch, 1, n_queries, seq_len]` is False, or those of
        other documents, whose begins `[n]` may take the place of the mask.
        """
        batch, seq_len, d_model = x.shape
        heads = (self.n_heads, d_model // self.n_heads)
        if positions is None or positions.ndim == 1:
            # each [batch, n_heads, seq_len, d_head]
            query, key, value = (
                part.view(batch, seq_len, *heads).transpose(1, 2)
                for part in self.query_key_value(x).chunk(3, dim=-1)
            )
            query = rotate(query, rotary)
        else:
            to_query, to_key_value = self.query_key_value.weight.split(
                [d_model, 2 * d_model]
            )
            key, value = (
                part.view(batch, seq_len, *heads).transpose(1, 2)
                for part in F.linear(x, to_key_value).chunk(2, dim=-1)
            )
            query = (
                F.linear(select(x, positions), to_query)
                .view(batch, -1, *heads)
                .transpose(1, 2)
            )
            of_all = rotary.flatten(1, -2)
            rows = positions.unsqueeze(1) % of_all.shape[1]
            query = rotate(query, of_all[:, rows])
            positions = None
        dropout = self.dropout if self.training else 0.0
        key = rotate(key, rotary)
        if mask is not None and mask.ndim == 1:
            mixed = mix_within(query, key, value, mask)
        else:
            mixed = mix(query, key, value, mask, dropout)
        return self.output(
            select(mixed.transpose(1, 2).reshape(batch, -1, d_model), positions)
        )


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

    def __init__(
        self, d_model: int, n_heads: int, d_ff: int, dropout: float, is_first: bool
    ):
        super().__init__()
        self.attention_norm = nn.Identity() if is_first else norm(d_model)
        self.attention = Attention(d_model, n_heads, dropout)
        self.feed_forward_norm = norm(d_model)
        self.feed_forward = GeGLU(d_model, d_ff)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        rotary: Tensor,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        mixed = self.attention(self.attention_norm(x), rotary, positions, mask)
        x = select(x, positions) + self.dropout(mixed)
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))


class ModernEncoder(nn.Module):
    """Token ids `[batch, seq_len]` to vectors `[batch, seq_len, d_model]`, for windows of any
    length."""

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
        """`n_heads` divides `d_model` into heads of an even size. `ngrams` adds vectors to the
        tokens'."""
        super().__init__()
        self.d_model = d_model
        self.d_head = d_model // n_heads
        self.embedding = Embedding(n_tokens, d_model)
        self.embedding_norm = norm(d_model)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            Layer(d_model, n_heads, d_ff, dropout, is_first=i == 0)
            for i in range(n_layers)
        )
        self.final_norm = norm(d_model)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.ngrams = ngrams

    def forward(
        self,
        inputs: Tensor,
        positions: Tensor | None = None,
        attention_mask: Tensor | None = None,
        begins: Tensor | None = None,
        **extras: Tensor,
    ) -> Tensor:
        """`attention_mask` `[batch, seq_len]` is the number of each token's document in its window,
        from 1 on, and 0 at padding (or True and False). A token sees its own document only, and
        gets the vector that it has if the document is alone; those of padding have no meaning.

        With `positions`, indices into `inputs.flatten()`, only the vectors there are returned,
        `[*positions.shape, d_model]`: the last feed-forward runs only there. With `[batch, n]`,
        whose row i lies in window i, the last attention too has queries only there. With `begins` of
        the documents (see `data.windows.packed`), attention needs no mask. `extras` are for the `embedded` of
        subclasses.
        """
        x = self.embedded(inputs, attention_mask, **extras)
        rotary = rotary_table(x.shape[1], self.d_head, x.device)
        x = self.dropout(self.embedding_norm(x))
        mask = None
        last_mask = None
        shape = None if positions is None else positions.shape
        if begins is not None:
            mask = last_mask = begins
            rotary = rotary[:, places_after(begins, *inputs.shape)]
            # queries lie together in their document
            positions = None if positions is None else positions.flatten()
        elif attention_mask is not None:
            mask, last_mask, places = masks_of(attention_mask, positions)
            rotary = rotary[:, places]  # [2, batch, 1, seq_len, d_head]

        *earlier, last = self.layers
        for layer in earlier:
            x = layer(x, rotary, mask=mask)
        x = self.final_norm(last(x, rotary, positions, last_mask))
        return x if shape is None else x.view(*shape, self.d_model)

    def at_tokens(self, x: Tensor, inputs: Tensor, mask: Tensor | None) -> Tensor:
        """The vectors of the tokens `inputs` among those of a layer: here, all."""
        return x

    def embedded(self, inputs: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The vectors of tokens that the layers begin with, before the norm, `[batch, seq_len,
        d_model]`."""
        if self.ngrams is None:
            return self.embedding(inputs)
        ngrams = self.ngrams(inputs, attention_mask)  # first: torch.compile stops here
        return self.embedding(inputs) + ngrams
