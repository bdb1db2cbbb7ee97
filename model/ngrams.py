"""N-gram embeddings: vectors for the characters around a position, looked up in a table.

Each row learns which characters its n-gram makes likely. The method is hash embeddings (Svenstrup
et al. 2017), used for characters by CANINE (Clark et al. 2022). Here n-grams lie on both sides, and
`[MASK]` is a symbol like any other.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# offsets from the position: (-2, -1) are the two characters before it
Ngrams = Sequence[tuple[int, ...]]
NGRAMS: Ngrams = (  # of each length, as many in the second half, which looks ahead, as in the first
    *((-2, -1), (-3, -2), (-2, 1), (-1, 1), (-3, -2, -1), (-2, -1, 1), (-4, -3, -2)),
    *((-4, -3, -2, -1), (-3, -2, -1, 1), (-2, -1, 1, 2)),
    *((1, 2), (2, 3), (-1, 2), (-2, 2), (1, 2, 3), (-1, 1, 2), (2, 3, 4)),
    *((1, 2, 3, 4), (-1, 1, 2, 3), (-3, -2, 2, 3)),
)
HASH_SEED = 0


class NgramEmbedding(nn.Module):
    """Token ids `[batch, seq_len]` to a vector per token, `[batch, seq_len, d_model]`: the sum of
    its n-grams' rows.

    All n-grams share one table, which starts at zero. N-grams with the same hash share a row. With
    two parts, a row is half a vector: one half of the n-grams adds to the first half of each
    vector, the other half to the second.
    """

    # [n_tokens + 1], the number of each token in the hash; its id, unless the vocabulary has grown
    symbols: Tensor
    factors: Tensor  # [2 * reach + 1, n_ngrams], 0 at offsets that are not in an n-gram
    summands: Tensor  # [n_ngrams]

    def __init__(
        self,
        *,
        n_tokens: int,
        d_model: int,
        ngrams: Ngrams,
        n_rows: int,
        n_parts: int = 1,
        dropout: float = 0.0,
    ):
        """`n_parts` divides `d_model` and the number of `ngrams`. `dropout` is the probability that
        a row is left out of a sum in training; the others are scaled up."""
        super().__init__()
        self.n_parts = n_parts
        self.dropout = dropout
        self.border = n_tokens  # the token outside of a window
        reach = max(max(map(abs, ngram)) for ngram in ngrams)
        generator = torch.Generator().manual_seed(HASH_SEED)
        random_int64 = partial(
            torch.randint, -(2**63), 2**63 - 1, generator=generator, device="cpu"
        )
        is_member = torch.zeros(
            2 * reach + 1, len(ngrams), dtype=torch.bool, device="cpu"
        )
        for i, ngram in enumerate(ngrams):
            is_member[[reach + offset for offset in ngram], i] = True
        self.register_buffer("symbols", torch.arange(n_tokens + 1, device="cpu"))
        self.register_buffer("factors", random_int64(is_member.shape) * is_member)
        self.register_buffer("summands", random_int64((len(ngrams),)))
        # The optimizers that update only the rows that were looked up set its `sparse`.
        self.table = nn.EmbeddingBag.from_pretrained(
            torch.zeros(n_rows, d_model // n_parts), freeze=False, mode="sum"
        )

    @property
    def can_compile(self) -> bool:
        return not self.table.sparse  # torch.compile cannot handle sparse gradients

    def forward(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        """`mask` `[batch, seq_len]` has the number of each token's document, outside of which
        n-grams see borders only; where it is 0 or False, at padding, vectors are zero."""
        table = self.table.weight
        rows = self.rows(inputs, mask)
        # an exported program has no sparse gradients and no dropout
        if torch.compiler.is_exporting():
            vectors = F.embedding(rows.unflatten(-1, (self.n_parts, -1)), table)
            return vectors.sum(-2).flatten(-2)
        weights = torch.ones(rows.shape, dtype=table.dtype, device=rows.device)
        if mask is not None:
            weights = weights * (mask != 0).unsqueeze(-1)
        parts = (-1, rows.shape[2] // self.n_parts)
        rows = rows.view(parts)
        weights = F.dropout(weights.view(parts), self.dropout, self.training)
        sums = (
            SumOfRows.apply(table, rows, weights)
            if self.table.sparse
            else self.table(rows, None, weights)
        )
        return sums.view(*inputs.shape, -1)

    def _load_from_state_dict(  # type: ignore[override]
        self, state_dict: Any, prefix: str, *arguments: Any
    ) -> None:
        # earlier weights lack it, and have other n-grams
        state_dict.setdefault(f"{prefix}symbols", self.symbols)
        for name in ("factors", "summands"):
            own = getattr(self, name)
            own.resize_(state_dict.get(f"{prefix}{name}", own).shape)
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    def rows(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        """The row of each n-gram around each token, `[batch, seq_len, n_ngrams]`.

        A multilinear hash (Lemire and Kaser 2014): the highest bits of summand + sum of factor *
        symbol, modulo 2^64.
        """
        reach = len(self.factors) // 2
        seq_len = inputs.shape[1]
        around = (reach, reach)
        symbols = self.symbols[F.pad(inputs, around, value=self.border)]
        documents = None if mask is None else F.pad(mask.long(), around)
        hashes = self.summands
        for i, factors in enumerate(self.factors):
            neighbors = symbols[:, i : i + seq_len]
            if documents is not None:
                here = documents[:, reach : reach + seq_len]
                is_own = documents[:, i : i + seq_len].eq(here)
                neighbors = torch.where(is_own, neighbors, self.symbols[self.border])
            hashes = hashes + neighbors[..., None] * factors
        return ((hashes >> 33) + 2**30) * self.table.num_embeddings >> 31


class SumOfRows(torch.autograd.Function):
    """`F.embedding_bag` with mode `sum`, whose gradient is sparse and has each row once, in order:
    PyTorch's repeats rows, and takes several times as long."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, rows: Tensor, weights: Tensor) -> Tensor:
        """Sums of `rows` `[n_sums, n]` of `table` `[n_rows, length]`, with `weights` of the same
        shape as `rows`."""
        ctx.save_for_backward(rows, weights)
        ctx.size = table.shape
        return F.embedding_bag(rows, table, mode="sum", per_sample_weights=weights)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        rows, weights = ctx.saved_tensors
        # sorting int32 takes half the time
        ordered, order = rows.flatten().int().sort(stable=True)
        row, count = ordered.unique_consecutive(return_counts=True)
        sums = F.embedding_bag(
            order // rows.shape[1],
            gradient.contiguous(),
            count.cumsum(0) - count,  # where the n-grams of each row begin
            mode="sum",
            per_sample_weights=weights.flatten()[order],
        )
        sparse = torch.sparse_coo_tensor(
            row.long()[None], sums, ctx.size, check_invariants=False
        )
        return sparse, None, None
