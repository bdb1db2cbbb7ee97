"""N-gram embeddings: vectors for the characters around a position, looked up in a table.

Each row learns which characters its n-gram makes likely. The method is hash embeddings (Svenstrup et al. 2017), used
for characters by CANINE (Clark et al. 2022). Here n-grams lie on both sides, and `[MASK]` is a symbol like any other.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Ngram = tuple[int, ...]  # offsets from the position: (-2, -1) are the two characters before it
NGRAMS: tuple[Ngram, ...] = (
    *((-1,), (1,), (-2,), (2,), (-3,), (3,), (-2, -1), (-1, 1), (1, 2), (-3, -1), (-2, 1), (-1, 2), (1, 3)),
    *((-4, -1), (-3, 1), (-1, 3), (1, 4), (-5, -1), (1, 5), (-3, -2), (2, 3), (-4, -3), (3, 4), (-3, -2, -1)),
    *((-2, -1, 1), (-1, 1, 2), (1, 2, 3), (-3, -2, 1), (-3, -1, 1), (-2, -1, 2), (-2, 1, 2), (-1, 1, 3), (-1, 2, 3)),
    *((-4, -3, -2), (2, 3, 4), (-5, -4, -3), (3, 4, 5), (-4, -3, -2, -1), (-3, -2, -1, 1), (-2, -1, 1, 2)),
    *((-1, 1, 2, 3), (1, 2, 3, 4)),
)


class NgramEmbedding(nn.Module):
    """Token ids `[batch, seq_len]` to the normed sum of the n-grams' rows per token, `[batch, seq_len, d_model]`.

    All n-grams share one table, which starts at zero. N-grams with the same hash share a row.
    """

    symbols: Tensor  # [n_tokens + 1], the number of each token in the hash; its id, unless the vocabulary has grown
    factors: Tensor  # [2 * reach + 1, n_ngrams], 0 at offsets that are not in an n-gram
    summands: Tensor  # [n_ngrams]

    def __init__(self, *, n_tokens: int, d_model: int, ngrams: Sequence[Ngram], n_rows: int, dropout: float = 0.0):
        """`dropout` is the probability that a row is left out of a sum in training."""
        super().__init__()
        self.ngrams = tuple(ngrams)
        self.dropout = dropout
        self.border = n_tokens  # the token outside of a window
        self.reach = max(abs(offset) for ngram in ngrams for offset in ngram)
        generator = torch.Generator().manual_seed(0)  # the same hash in every run
        random_int64 = partial(torch.randint, -(2**63), 2**63 - 1, generator=generator, device="cpu")
        offsets = range(-self.reach, self.reach + 1)
        is_member = torch.tensor([[offset in ngram for ngram in ngrams] for offset in offsets], device="cpu")
        self.register_buffer("symbols", torch.arange(n_tokens + 1, device="cpu"))
        self.register_buffer("factors", random_int64(is_member.shape) * is_member)
        self.register_buffer("summands", random_int64((len(ngrams),)))
        # The optimizers that update only the rows that were looked up set its `sparse`.
        self.table = nn.EmbeddingBag.from_pretrained(torch.zeros(n_rows, d_model), freeze=False, mode="sum")
        self.norm = nn.LayerNorm(d_model, bias=False)

    @property
    def can_compile(self) -> bool:
        return not self.table.sparse  # torch.compile cannot handle sparse gradients

    def forward(self, inputs: Tensor, positions: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """With `positions`, indices into `inputs.flatten()`, only the vectors there are computed: `[batch, n]` gives
        `[batch, n, d_model]`, `[n]` leaves zeros elsewhere. `mask` `[batch, seq_len]` is False outside of the text."""
        if mask is not None:
            inputs = inputs.masked_fill(~mask, self.border)
            if positions is None and not torch.compiler.is_exporting():
                positions = mask.flatten().nonzero().flatten()  # no gradient for the rows around padding
        vectors = self.norm(self.sums(self.rows(inputs, positions)))
        if positions is None or positions.ndim == 2:
            return vectors.view(*(inputs if positions is None else positions).shape, -1)
        everywhere = vectors.new_zeros(inputs.numel(), vectors.shape[1])
        return everywhere.index_copy(0, positions, vectors).view(*inputs.shape, -1)

    def sums(self, rows: Tensor) -> Tensor:
        """The sum of each of `rows` `[n, n_ngrams]` of the table, `[n, d_model]`."""
        table = self.table.weight
        if torch.compiler.is_exporting():  # an exported program has no sparse gradients and no dropout
            return F.embedding(rows, table).sum(-2)
        weights = F.dropout(torch.ones(rows.shape, dtype=table.dtype, device=rows.device), self.dropout, self.training)
        return SumOfRows.apply(table, rows, weights) if self.table.sparse else self.table(rows, None, weights)

    def rows(self, inputs: Tensor, positions: Tensor | None = None) -> Tensor:
        """The row of each n-gram around each of `positions`, or around each token, `[n, n_ngrams]`.

        A multilinear hash (Lemire and Kaser 2014): the highest bits of summand + sum of factor * symbol, modulo 2^64.
        """
        symbols = self.symbols[F.pad(inputs, (self.reach, self.reach), value=self.border)]
        around = symbols.unfold(1, len(self.factors), 1).flatten(0, 1)  # [batch * seq_len, 2 * reach + 1]
        around = around if positions is None else around[positions.flatten()]
        hashes = self.summands
        for column, factors in zip(around.unbind(1), self.factors, strict=True):
            hashes = hashes + column.unsqueeze(1) * factors
        return ((hashes >> 33) + 2**30) * self.table.num_embeddings >> 31


class SumOfRows(torch.autograd.Function):
    """`F.embedding_bag` with mode `sum`, whose gradient is sparse and has each row once, in order: PyTorch's repeats
    rows, and takes several times as long."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, rows: Tensor, weights: Tensor) -> Tensor:
        """Sums of `rows` `[n_sums, n_ngrams]` of `table` with `weights` of the same shape: `[n_sums, d_model]`."""
        ctx.save_for_backward(rows, weights)
        ctx.size = table.shape
        return F.embedding_bag(rows, table, mode="sum", per_sample_weights=weights)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        rows, weights = ctx.saved_tensors
        ordered, order = rows.flatten().int().sort(stable=True)  # sorting int32 takes half the time
        row, count = ordered.unique_consecutive(return_counts=True)
        begins, weight = count.cumsum(0) - count, weights.flatten()[order]
        inputs = order // rows.shape[1], gradient.contiguous(), begins
        sums = F.embedding_bag(*inputs, mode="sum", per_sample_weights=weight)
        return torch.sparse_coo_tensor(row.long()[None], sums, ctx.size, check_invariants=False), None, None
