"""Models for benchmarks/tricks.py: `modern` with one published trick each. recipes/tricks.yaml names their sources.

Each function or class with `@option` is a value of model.architecture, as in configs/model.py. With its initial
weights, each model except `untied_decoder` computes the same function as `modern`.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from configs.model import ModelConfigs, modern, ngram_embedding, option
from model.embedding import Embedding
from model.masked_language_model import MaskedLanguageModel
from model.modern import ModernEncoder, rotary_table

GROWN = 128  # `growing_depth`: the length of windows from which on all layers are trained


class Modern(MaskedLanguageModel):
    """`modern` as a class, with the same initial weights for the same seed."""

    def __init__(self, c: ModelConfigs):
        model = modern(c)
        super().__init__(model.encoder)
        self.head = model.head


@option(ModelConfigs.architecture, "untied_decoder")
class UntiedDecoder(Modern):
    """The decoder has a matrix of its own, drawn like the embedding's."""

    def __init__(self, c: ModelConfigs):
        super().__init__(c)
        self.decoder = Embedding(c.n_tokens, c.d_model)
        nn.init.normal_(self.decoder.weight, std=0.02)

    def _predict(self, x: Tensor) -> Tensor:
        return F.linear(self.head(x), self.decoder.weight, self.decoder_bias)


@option(ModelConfigs.architecture)
def biases(c: ModelConfigs) -> nn.Module:
    """All matrices and norms have biases."""
    model = modern(c)
    model.takes_positions_per_window = False  # because that path leaves biases out
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.bias = nn.Parameter(torch.zeros(module.out_features))
        elif isinstance(module, nn.LayerNorm):
            module.bias = nn.Parameter(torch.zeros(module.normalized_shape))
    return model


class LaterLayer(nn.Module):
    """A layer that is left out in training on short windows. Until it is trained its output is its input, exactly."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, *others: Tensor) -> Tensor:
        return x if self.training and x.shape[1] < GROWN else self.layer(x, *others)


@option(ModelConfigs.architecture)
def growing_depth(c: ModelConfigs) -> nn.Module:
    """The first and the last layer are trained from the beginning, those between them on windows of 128 and more."""
    model = modern(c)
    for i in range(1, c.n_layers - 1):
        model.encoder.layers[i] = LaterLayer(model.encoder.layers[i])
    return model


@option(ModelConfigs.architecture, "queries_everywhere")
class QueriesEverywhere(Modern):
    """The last attention computes its queries at all positions, not at the masked ones only."""

    def forward(self, inputs: Tensor, positions: Tensor | None = None) -> Tensor:
        return super().forward(inputs, None if positions is None else positions.flatten())


class ScaledResiduals(ModernEncoder):
    """Each layer reads a x + b x0 with scalars a and b of its own; x0 is the embedding. Without dropout."""

    def __init__(self, **arguments: Any):
        super().__init__(**arguments)
        self.of_x = nn.Parameter(torch.ones(len(self.layers)))
        self.of_embedding = nn.Parameter(torch.zeros(len(self.layers)))

    def forward(self, inputs: Tensor, segments: Tensor | None = None, positions: Tensor | None = None) -> Tensor:
        cos, sin = rotary_table(inputs.shape[1], self.d_head, inputs.device)
        embedding = self.embedding(inputs)
        if self.ngrams is not None:
            embedding = embedding + self.ngrams(inputs)
        x = embedding = self.embedding_norm(embedding)
        for i, layer in enumerate(self.layers):
            x = self.of_x[i] * x + self.of_embedding[i] * embedding
            x = layer(x, cos, sin, positions if i == len(self.layers) - 1 else None)
        return self.final_norm(x)


@option(ModelConfigs.architecture)
def residual_scalars(c: ModelConfigs) -> nn.Module:
    """Scalars for the residual stream and for the embedding in each layer."""
    encoder = ScaledResiduals(
        n_tokens=c.n_tokens,
        d_model=c.d_model,
        n_layers=c.n_layers,
        n_heads=c.n_heads,
        d_ff=c.d_ff,
        ngrams=ngram_embedding(c),
    )
    return MaskedLanguageModel(encoder)
