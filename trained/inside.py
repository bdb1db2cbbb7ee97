"""Looks inside a trained model: where it attends, and which characters it embeds alike."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from configs.keys import ConfigError
from data.vocabulary import Vocabulary
from model.modern import rotate


@contextmanager
def recorded_inputs(modules: Iterable[nn.Module]) -> Iterator[list[tuple[Any, ...]]]:
    """The arguments of each call of `modules` inside the context, in the order of the calls."""
    calls: list[tuple[Any, ...]] = []
    with ExitStack() as hooks:
        for module in modules:
            hook = module.register_forward_pre_hook(
                lambda _, arguments: calls.append(arguments)
            )
            hooks.enter_context(hook)

        yield calls


@torch.inference_mode()
def attention_maps(model: Any, ids: Tensor) -> Tensor:
    """The attention of each layer and head from each position of a text `[seq_len]` to each other
    one.

    Returns `[n_layers, n_heads, seq_len, seq_len]`; each row sums to 1. The model must be a
    `modern`.
    """
    attentions = [layer.attention for layer in model.encoder.layers]
    with recorded_inputs(attentions) as calls:
        model(ids.unsqueeze(0))
    maps = []
    for attention, (x, rotary, *_) in zip(attentions, calls, strict=True):
        heads = attention.query_key_value(x).view(
            *x.shape[:2], 3, attention.n_heads, -1
        )
        query, key, _ = heads.permute(2, 0, 3, 1, 4)  # [1, n_heads, seq_len, d_head]
        products = rotate(query, rotary) @ rotate(key, rotary).transpose(-1, -2)
        maps.append((products / query.shape[-1] ** 0.5).softmax(-1).squeeze(0))

    return torch.stack(maps)


@torch.inference_mode()
def nearest_characters(
    model: Any, vocabulary: Vocabulary, n: int = 5
) -> dict[str, str]:
    """For each character, the `n` characters whose embeddings have the greatest cosine similarity
    to its own.

    Raises ConfigError if tokens are not characters.
    """
    if not vocabulary.is_characters:
        raise ConfigError(
            f"nearest_characters compares characters, and the tokens of this run are {vocabulary.tokens}"
        )

    n_characters = vocabulary.n_ordinary
    vectors = nn.functional.normalize(
        model.encoder.embedding.weight[:n_characters], dim=-1
    )
    similarity = (vectors @ vectors.T).fill_diagonal_(-torch.inf)
    nearest = similarity.topk(min(n, n_characters - 1)).indices
    texts = [vocabulary.decode(row) for row in nearest]

    return dict(zip(vocabulary.characters, texts, strict=True))
