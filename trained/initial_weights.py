"""Starts a run with the weights of another one, whose vocabulary may be smaller."""

import torch
from torch import nn

from data.vocabulary import Vocabulary
from runs.run_folder import RunFolder
from training.checkpoint import CheckpointError, load_weights


@torch.no_grad()
def copy_weights(model: nn.Module, vocabulary: Vocabulary, run: RunFolder) -> None:
    """Copy the best weights of `run` into a model whose vocabulary has all tokens of the run's.

    Rows of tokens that the run did not have keep their initial weights. Raises CheckpointError if the models differ in
    more than their tokens.
    """
    path = run.checkpoints / "best.safetensors"
    weights, old = load_weights(path), Vocabulary(**run.vocabulary())
    targets = model.state_dict()
    if set(targets) != set(weights) or old.special_tokens != vocabulary.special_tokens:
        raise CheckpointError(f"{path} holds the weights of a different model: leave the model's keys as they are")
    ids = torch.tensor([vocabulary.id_of(token) for token in (*old.characters, *old.special_tokens)])
    for name, target in targets.items():
        weight = weights[name].to(target.device)
        if target.shape == weight.shape:
            target.copy_(weight)
        elif name.endswith("ngrams.symbols"):  # new characters get new numbers, so known n-grams keep their rows
            target.copy_(weight.max() + 1 + torch.arange(len(target)))
            target[torch.cat([ids, torch.tensor([vocabulary.n_tokens])])] = weight
        elif target.shape == (vocabulary.n_tokens, *weight.shape[1:]) and len(weight) == old.n_tokens:
            target[ids] = weight
        else:
            sizes = f"{name} has the shape {list(weight.shape)}, not {list(target.shape)}"
            raise CheckpointError(f"{path}: {sizes}: leave the model's keys as they are")
