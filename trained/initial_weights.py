"""Starts a run with the weights of another one, whose vocabulary may be smaller."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from configs.keys import ConfigError
from data.vocabulary import Vocabulary
from runs.run_folder import RunFolder
from training.checkpoint import CheckpointError, load_weights

MAY_DIFFER = {"model.dropout", "model.ngram_dropout"}


@torch.no_grad()
def copy_weights(model: nn.Module, vocabulary: Vocabulary, values: Mapping[str, Any], run: RunFolder) -> None:
    """Copy the best weights of `run` into the model of a new run with the keys `values`.

    The rows of tokens that `run` did not have keep their initial weights. Raises ConfigError if the keys of the models
    differ, or if the vocabulary lacks a token; CheckpointError if the weights are damaged.
    """
    path = run.checkpoints / "best.safetensors"
    weights, before, old = load_weights(path), run.config(), Vocabulary(**run.vocabulary())
    for key in values:
        is_shape = key.startswith(("model.", "objective.")) and key not in MAY_DIFFER
        if is_shape and before.get(key, values[key]) != values[key]:
            raise ConfigError(f"{key}={values[key]} differs from {run.path.name}, which has {before[key]}")
    if missing := set(old.characters) - set(vocabulary.characters):
        raise ConfigError(
            f"the vocabulary lacks {sorted(missing)} of {run.path.name}: add them to data.extra_characters"
        )
    ids = torch.tensor([vocabulary.id_of(token) for token in (*old.characters, *old.special_tokens)])
    for name, target in model.state_dict().items():
        if name.endswith("ngrams.symbols"):  # new characters get new numbers, so known n-grams keep their rows
            weight = weights.get(name, torch.arange(old.n_tokens + 1))  # weights of earlier versions have none
            target.copy_(weight.max() + 1 + torch.arange(len(target)))
            target[torch.cat([ids, torch.tensor([vocabulary.n_tokens])])] = weight.to(target.device)
            continue
        if name not in weights:
            raise CheckpointError(f"{path} holds the weights of a different model")
        weight = weights[name].to(target.device)
        if len(target) == vocabulary.n_tokens and len(weight) == old.n_tokens:
            target[ids] = weight
        else:
            target.copy_(weight)
