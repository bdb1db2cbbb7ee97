"""The causal twin of Folio's encoder: the same shape, trained on next-character prediction.

    python -m benchmarks.models model.architecture=causal masking.strategy=next_character

Position t of the inputs shows character t - 1, the first one `[MASK]`, and predicts character t from what the positions
up to t show. So a window's losses are the terms of log p(x) = sum_t log p(x_t | x_0 ... x_{t-1}), and none is left out.
`loss.train` is in nats per character. `loss.valid` has no meaning: the protocol hides characters from a model that
expects to see all earlier ones.
"""

from collections import Counter
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from configs.masking import MaskingConfigs
from configs.model import ModelConfigs, modern, option
from data.masking import MaskedBatch
from model.modern import Attention, at, rotate
from model.ngrams import NGRAMS, Ngram, NgramEmbedding

FARTHEST = -7  # offset of the farthest of 8 visible characters, as many as there are around a position in NGRAMS


class CausalAttention(nn.Module):
    """`Attention` with the same weights, in which a position sees itself and earlier ones only."""

    def __init__(self, attention: Attention):
        super().__init__()
        self.n_heads, self.dropout = attention.n_heads, attention.dropout
        self.query_key_value, self.output = attention.query_key_value, attention.output

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor | None = None) -> Tensor:
        """Attention over `[batch, seq_len, d_model]`; the vectors at `positions` if given, as `rows` lists them."""
        queries_keys_values = self.query_key_value(x).unflatten(-1, (3, self.n_heads, -1))
        query, key, value = queries_keys_values.permute(2, 0, 3, 1, 4)  # each [batch, n_heads, seq_len, d_head]
        dropout = self.dropout if self.training else 0.0
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
        return self.output(at(positions, mixed.transpose(1, 2).flatten(2)))


def visible_ngrams(longest: int) -> list[Ngram]:
    """As many n-grams of each length up to `longest` as `modern` has, of the offsets 0, -1, -2, ..."""
    # Those with the nearest characters. NGRAMS shifted or mirrored to the left would reach as far as 8 characters back
    # and miss nearer ones, and a twin with a worse table than its peer would prove nothing.
    n_of_length = Counter(len(ngram) for ngram in NGRAMS if len(ngram) <= longest)
    nearest = {n: sorted(combinations(range(FARTHEST, 1), n), key=sum, reverse=True) for n in n_of_length}
    return [ngram for length, n in n_of_length.items() for ngram in nearest[length][:n]]


@option(ModelConfigs.architecture)
def causal(c: ModelConfigs) -> nn.Module:
    """`modern` with causal attention, and with n-grams of visible characters: as many weights, initialized alike."""
    model = modern(c)
    for layer in model.encoder.layers:
        layer.attention = CausalAttention(layer.attention)
    if ngrams := visible_ngrams(c.ngrams):
        model.encoder.ngrams = NgramEmbedding(
            n_tokens=c.n_tokens, d_model=c.d_model, ngrams=ngrams, n_rows=c.ngram_rows, dropout=c.ngram_dropout
        )
    return model


def shifted(tokens: Tensor, mask_token: int) -> Tensor:
    """The inputs that predict `tokens` `[batch, seq_len]`: `[MASK]` as the beginning symbol, and all but the last."""
    return F.pad(tokens[:, :-1], (1, 0), value=mask_token)


class NextCharacter:
    """In place of a masker: every position has the label of the character that follows what it shows."""

    learns = False

    def __init__(self, mask_token: int):
        self.mask_token = mask_token

    def __call__(self, tokens: Tensor, offsets: Tensor, masking_prob: float, progress: float = 0.0) -> MaskedBatch:
        """Windows of `tokens` `[batch, seq_len]` at `offsets` of the text; the masking rate has no effect."""
        positions = torch.arange(tokens.numel(), device=tokens.device)
        inputs = shifted(tokens, self.mask_token)
        return MaskedBatch(inputs, positions, tokens.flatten(), offsets.flatten(), is_even=True)

    def observe(self, batch: MaskedBatch, losses: Tensor) -> None:
        """Does nothing: no character is chosen."""

    def state_dict(self) -> dict[str, Any]:
        """Empty: nothing is drawn."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


@option(MaskingConfigs.strategy)
def next_character(c: MaskingConfigs) -> NextCharacter:
    """For model.architecture=causal."""
    return NextCharacter(c.vocabulary.mask_token)
