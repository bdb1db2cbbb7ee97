"""N-gram embeddings: vectors for the characters around a position, looked up in tables.

They bring what counting n-grams knows into the first layer, so that the layers above need not learn it. Hash embeddings
(Svenstrup et al. 2017), used for characters by CANINE (Clark et al. 2022) and BLT (Pagnoni et al. 2024). Here the
n-grams lie on both sides of the position, and `[MASK]` is a symbol like any other.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Ngram = tuple[int, ...]  # offsets from the position: (-2, -1) are the two characters before it
NGRAMS: tuple[Ngram, ...] = (
    *((-2, -1), (-1, 1), (1, 2)),
    *((-3, -2, -1), (-2, -1, 1), (-1, 1, 2), (1, 2, 3)),
    *((-4, -3, -2, -1), (-3, -2, -1, 1), (-2, -1, 1, 2), (-1, 1, 2, 3), (1, 2, 3, 4)),
)
PRIME = 2**31 - 1
FACTOR = 2_654_435_761  # less than 2^63 / PRIME, so the product fits into 64 bits


class NgramEmbedding(nn.Module):
    """Token ids `[batch, seq_len]` to a vector per token, `[batch, seq_len, d_model]`: the sum of its n-grams' rows.

    All tables are one matrix of zeros at first. A table has a row per n-gram if `max_rows` rows are enough for that,
    else n-grams are hashed into `max_rows` rows, and some share a row. Beyond the borders of a window lies a symbol of
    its own.
    """

    def __init__(self, *, n_tokens: int, d_model: int, ngrams: Sequence[Ngram], max_rows: int):
        super().__init__()
        self.ngrams = tuple(ngrams)
        self.n_symbols = n_tokens + 1  # the last one stands for everything outside of the window
        self.n_rows = [min(self.n_symbols ** len(ngram), max_rows) for ngram in self.ngrams]
        # Its `sparse` is set by the optimizers that update only the rows that were looked up.
        self.tables = nn.EmbeddingBag(sum(self.n_rows), d_model, mode="sum")
        nn.init.zeros_(self.tables.weight)

    @torch.compiler.disable
    def forward(self, inputs: Tensor) -> Tensor:
        return self.tables(self.rows(inputs).flatten(0, 1)).view(*inputs.shape, -1)

    def rows(self, inputs: Tensor) -> Tensor:
        """The row of each n-gram around each token, `[batch, seq_len, n_ngrams]`."""
        seq_len, reach = inputs.shape[1], max(abs(offset) for ngram in self.ngrams for offset in ngram)
        symbols = F.pad(inputs, (reach, reach), value=self.n_symbols - 1)
        rows, first_row = [], 0
        for ngram, n_rows in zip(self.ngrams, self.n_rows, strict=True):
            number = torch.zeros_like(inputs)  # of the n-gram, in base n_symbols
            for offset in ngram:
                number = (number * self.n_symbols + symbols[:, reach + offset : reach + offset + seq_len]) % PRIME
            if self.n_symbols ** len(ngram) > n_rows:
                number = number * FACTOR % PRIME * n_rows // PRIME
            rows.append(first_row + number)
            first_row += n_rows
        return torch.stack(rows, dim=-1)
