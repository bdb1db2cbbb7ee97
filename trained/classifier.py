"""Classifiers of texts and characters: a linear layer on the vectors of an encoder.

A character is read by its vectors in all layers; a text by their mean and maximum over its characters.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from trained.batches import batches_by_length, padded


class Classifier(nn.Module):
    """Token ids `[batch, length]` to scores of texts `[batch, n_labels]` or characters `[batch, length, n_labels]`."""

    def __init__(self, encoder: Any, n_labels: int, of_characters: bool):
        super().__init__()
        self.encoder = encoder
        self.of_characters = of_characters
        n_features = (len(encoder.layers) + 1) * encoder.embedding.embedding_dim * (1 if of_characters else 2)
        self.output = nn.Linear(n_features, n_labels)

    def forward(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        return self.output(self.features(ids, mask))

    def features(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        """The vectors of all layers, `[batch, length, n_features]`; of texts, their mean and maximum over the text."""
        x = layer_vectors(self.encoder, ids, mask)
        if self.of_characters:
            return x
        if mask is None:
            return torch.cat([x.mean(1), x.amax(1)], -1)
        is_text = mask.unsqueeze(-1)
        mean = (x * is_text).sum(1) / is_text.sum(1)
        return torch.cat([mean, x.masked_fill(~is_text, -torch.inf).amax(1)], -1)


def layer_vectors(encoder: Any, ids: Tensor, mask: Tensor | None) -> Tensor:
    """The input of each layer, and the encoder's output, `[batch, length, (n_layers + 1) * d_model]`."""
    read: list[Tensor] = []
    hooks = [layer.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0])) for layer in encoder.layers]
    try:
        last = encoder(ids, attention_mask=mask)
    finally:
        for hook in hooks:
            hook.remove()
    return torch.cat([*read, last], -1)


@torch.inference_mode()
def of_units(texts: Sequence[Tensor], function: Any, of_characters: bool) -> Tensor:
    """`function` of padded batches of similar lengths, for each text or character in their order: `[n_units, ...]`."""
    results: dict[int, Tensor] = {}
    for batch in batches_by_length(texts):
        values = function(*padded([texts[i] for i in batch]))
        results |= {i: v[: len(texts[i])] if of_characters else v[None] for i, v in zip(batch, values, strict=True)}
    return torch.cat([results[i] for i in range(len(texts))])
