"""Models for benchmarks/tricks.py that show a layer its neighbors: other n-grams, token shift, smear, convolution.

Each function with `@option` is a value of model.architecture, as in configs/model.py.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from configs.model import ModelConfigs, modern, option
from model.ngrams import NGRAMS, NgramEmbedding

CONTIGUOUS = tuple(n for n in NGRAMS if max(n) - min(n) < len(n) + (min(n) < 0 < max(n)))


@option(ModelConfigs.architecture)
def contiguous_ngrams(c: ModelConfigs) -> nn.Module:
    """Tables for n-grams without gaps only; the position itself is no gap."""
    model = modern(c)
    model.encoder.ngrams = NgramEmbedding(
        n_tokens=c.n_tokens, d_model=c.d_model, ngrams=CONTIGUOUS, n_rows=c.ngram_rows, dropout=c.ngram_dropout
    )
    return model


def neighbors(x: Tensor, reach: int) -> list[Tensor]:
    """`x` `[batch, seq_len, d]` as seen from up to `reach` positions before and after, with zeros beyond the window."""
    padded = F.pad(x, (0, 0, reach, reach))
    return [padded[:, i : i + x.shape[1]] for i in range(2 * reach + 1)]


class TokenShift(nn.Module):
    """A quarter of the channels comes from the position before, and a quarter from the one after."""

    def forward(self, x: Tensor) -> Tensor:
        before, here, after = (part.chunk(4, dim=-1) for part in neighbors(x, 1))
        return torch.cat([before[0], after[1], *here[2:]], dim=-1)


class Smear(nn.Module):
    """Adds a learned share of each neighbor's vector per channel."""

    def __init__(self, d_model: int):
        super().__init__()
        self.shares = nn.Parameter(torch.zeros(2, d_model))

    def forward(self, x: Tensor) -> Tensor:
        before, here, after = neighbors(x, 1)
        return here + self.shares[0] * before + self.shares[1] * after


class Convolution(nn.Module):
    """A depthwise convolution of width 5, which begins as the identity."""

    def __init__(self, d_model: int):
        super().__init__()
        weight = torch.zeros(5, 1, d_model)  # three dimensions, because Muon takes matrices
        weight[2] = 1.0
        self.weight = nn.Parameter(weight)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([w * part for w, part in zip(self.weight, neighbors(x, 2), strict=True)]).sum(0)


def _before_all(model: Any, new: Callable[[], nn.Module]) -> nn.Module:
    """`model` with a new module before each attention and feed-forward.

    The last feed-forward gets none: it runs at the masked positions only, which have no neighbors there.
    """
    layers = list(model.encoder.layers)
    for layer in layers:
        layer.attention_norm = nn.Sequential(layer.attention_norm, new())
        if layer is not layers[-1]:
            layer.feed_forward_norm = nn.Sequential(layer.feed_forward_norm, new())
    return model


@option(ModelConfigs.architecture)
def token_shift(c: ModelConfigs) -> nn.Module:
    """Token shift before each attention and feed-forward."""
    return _before_all(modern(c), TokenShift)


@option(ModelConfigs.architecture)
def convolution(c: ModelConfigs) -> nn.Module:
    """A convolution before each attention and feed-forward."""
    return _before_all(modern(c), lambda: Convolution(c.d_model))


@option(ModelConfigs.architecture)
def smear(c: ModelConfigs) -> nn.Module:
    """Smear after the embedding's norm."""
    model = modern(c)
    model.encoder.embedding_norm = nn.Sequential(model.encoder.embedding_norm, Smear(c.d_model))
    return model
