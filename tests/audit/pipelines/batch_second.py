"""Layers that expect [seq_len, batch] and get [batch, seq_len]: attention runs across the batch."""

from plain import D_MODEL, Encoder, loss_and_logits, make_batches
from torch import nn

__all__ = ["loss_and_logits", "make_batches", "make_model"]


class BatchSecond(Encoder):
    def __init__(self, n_tokens):
        super().__init__(n_tokens)
        layer = nn.TransformerEncoderLayer(D_MODEL, 4, 4 * D_MODEL, 0.0, "gelu", norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, nn.LayerNorm(D_MODEL), enable_nested_tensor=False)


def make_model(tokens):
    return BatchSecond(tokens.n_tokens)
