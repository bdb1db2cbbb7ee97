"""N-gram embeddings: vectors for the characters around a position, looked up in a table.

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
    *((-2, -1), (-1, 1), (1, 2), (-3, -1), (-2, 1), (-1, 2), (1, 3), (-2, 2)),
    *((-3, -2, -1), (-2, -1, 1), (-1, 1, 2), (1, 2, 3), (-3, -2, 1), (-1, 2, 3)),
    *((-4, -3, -2, -1), (-3, -2, -1, 1), (-2, -1, 1, 2), (-1, 1, 2, 3), (1, 2, 3, 4)),
)
PRIME = 2**31 - 1
FACTOR = 2_654_435_761  # about 2^32 / 1.618, Knuth's factor: numbers near each other get rows far from each other


class NgramEmbedding(nn.Module):
    """Token ids `[batch, seq_len]` to a vector per token, `[batch, seq_len, d_model]`: the sum of its n-grams' rows.

    All n-grams are hashed into one table of zeros at first; those with the same hash share a row. Outside of a window
    lies a symbol of its own.
    """

    def __init__(self, *, n_tokens: int, d_model: int, ngrams: Sequence[Ngram], n_rows: int):
        super().__init__()
        self.ngrams = tuple(ngrams)
        self.n_symbols = n_tokens + 1  # the last one stands for everything outside of the window
        # The optimizers that update only the rows that were looked up set its `sparse`.
        self.table = nn.EmbeddingBag(n_rows, d_model, mode="sum")
        nn.init.zeros_(self.table.weight)

    @torch.compiler.disable  # the compiler cannot handle sparse gradients
    def forward(self, inputs: Tensor) -> Tensor:
        return self.table(self.rows(inputs).flatten(0, 1)).view(*inputs.shape, -1)

    def rows(self, inputs: Tensor) -> Tensor:
        """The row of each n-gram around each token, `[batch, seq_len, n_ngrams]`."""
        seq_len, reach = inputs.shape[1], max(abs(offset) for ngram in self.ngrams for offset in ngram)
        symbols = F.pad(inputs, (reach, reach), value=self.n_symbols - 1)
        numbers = []
        for i, ngram in enumerate(self.ngrams, start=1):
            number = torch.full_like(inputs, i)  # the digits i and the n-gram's symbols, in base n_symbols
            for offset in ngram:
                number = (number * self.n_symbols + symbols[:, reach + offset : reach + offset + seq_len]) % PRIME
            numbers.append(number)
        # A hash below PRIME, scaled down to the number of rows. No product exceeds 64 bits.
        return torch.stack(numbers, dim=-1) * FACTOR % PRIME * self.table.num_embeddings // PRIME
