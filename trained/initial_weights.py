"""Starts a run with the weights of another one, whose vocabulary may be another."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from configs.command_line.command import SETTINGS, Command, config_of
from configs.data import DataConfigs
from configs.hugging_face import PREFIX
from configs.keys import ConfigError
from configs.own_code import vocabulary_of_run
from data.tokens import SUBWORDS
from data.tokens.subwords import SubwordVocabulary
from data.vocabulary import Vocabulary
from distributed.sharding import sharded_like, whole
from runs.find import find_run
from runs.run_folder import RunFolder
from training.checkpoint import CheckpointError, load_checkpoint

MAY_DIFFER = {"model.dropout", "model.ngram_dropout"}


def copy_initial_weights(model: nn.Module, data: DataConfigs, command: Command) -> None:
    """Copy the weights of the run, or the checkpoint, that the key `initial_weights` names, if it
    names one."""
    initial = command.values["initial_weights"]
    if initial.startswith(PREFIX):
        from trained.hugging_face_checkpoint import begin_with_checkpoint

        begin_with_checkpoint(model, data, command.values)
    elif initial:
        run = find_run(initial, command.logs)
        copy_weights(model, data.vocabulary, command.values, run)


@torch.no_grad()
def copy_weights(
    model: nn.Module, vocabulary: Vocabulary, values: Mapping[str, Any], run: RunFolder
) -> None:
    """Copy the best weights of `run` into the model of a new run with the keys `values`.

    The row of a subword that `run` did not have starts at the mean of the subwords that it
    replaces; those of other new tokens keep their initial weights. Raises ConfigError if the keys
    of the models differ, or if the vocabulary lacks a character; CheckpointError if the weights are
    damaged.
    """
    path = run.weights_path
    config = {key: setting.default for key, setting in SETTINGS.items()}
    config |= config_of(run, say=lambda line: None)
    weights = load_checkpoint(path).weights
    old = vocabulary_of_run(run, config)
    check_fits(vocabulary, values, old, config, run.path.name)

    kept = kept_tokens(vocabulary, old)
    ids = torch.tensor(list(kept))
    rows = torch.tensor(list(kept.values()))
    replaced = {}
    if isinstance(vocabulary, SubwordVocabulary) and isinstance(old, SubwordVocabulary):
        replaced = replaced_tokens(vocabulary, old)

    state = model.state_dict()
    # one tensor at a time: none of several processes has the whole model
    for name, own in state.items():
        target = whole(own)
        # new characters get new numbers, so known n-grams keep their rows
        if name.endswith("ngrams.symbols"):
            # weights of earlier versions have none
            weight = weights.get(name, torch.arange(old.n_tokens + 1))
            target.copy_(weight.max() + 1 + torch.arange(len(target)))
            target[ids] = weight[rows].to(target.device)
            target[-1] = weight[-1]  # outside of the text
        elif name not in weights:
            raise CheckpointError(f"{path} holds the weights of a different model")
        # those of an earlier version have other n-grams
        elif name.endswith(("ngrams.factors", "ngrams.summands")):
            state[name] = weights[name]
            continue
        elif len(target) == vocabulary.n_tokens and len(weights[name]) == old.n_tokens:
            target[ids] = weights[name][rows].to(target.device)
            for i, pieces in replaced.items():
                target[i] = weights[name][pieces].mean(0).to(target.device)
        else:
            target.copy_(weights[name])

        state[name] = sharded_like(target, own)

    model.load_state_dict(state)


def kept_tokens(vocabulary: Vocabulary, old: Vocabulary) -> dict[int, int]:
    """The ids of the tokens that both vocabularies have, with those in the old one."""
    ids = {}
    old_ids = {token: i for i, token in enumerate([*old.ordinary, *old.special_tokens])}
    for i, token in enumerate([*vocabulary.ordinary, *vocabulary.special_tokens]):
        if token in old_ids:
            ids[i] = old_ids[token]

    return ids


def replaced_tokens(
    vocabulary: SubwordVocabulary, old: SubwordVocabulary
) -> dict[int, list[int]]:
    """The ids of new subwords, with those of the old ones that their text had."""
    known = set(old.ordinary)
    prefix = vocabulary.tokenizer["model"].get("continuing_subword_prefix") or ""
    ids = {}
    for i, token in enumerate(vocabulary.ordinary):
        if token in known:
            continue
        text = vocabulary.surfaces[i].decode(errors="ignore")
        pieces = [
            piece for piece in old.encode(text).tolist() if piece < old.n_ordinary
        ]
        if not pieces:
            continue
        # the text is the middle of a word, which begins with another piece
        inside = prefix + old.ordinary[pieces[0]]
        if prefix and token.startswith(prefix) and inside in known:
            pieces[0] = old.id_of(inside)
        ids[i] = pieces

    return ids


def check_fits(
    vocabulary: Vocabulary,
    values: Mapping[str, Any],
    old: Vocabulary,
    config: Mapping[str, Any],
    name: str,
) -> None:
    """Raise ConfigError if the keys of the new model differ from the `config` of the run `name`, or
    if its vocabulary lacks a character of the `old` one."""
    for key in values:
        is_shape = key.startswith(("model.", "objective.")) and key not in MAY_DIFFER
        if is_shape and config[key] != values[key]:
            raise ConfigError(
                f"{key}={values[key]} differs from {name}, which has {config[key]}"
            )

    may_differ = old.is_characters or old.tokens == SUBWORDS
    if old.tokens != vocabulary.tokens or (
        not may_differ and old.ordinary != vocabulary.ordinary
    ):
        raise ConfigError(
            f"data.tokens={values['data.tokens']} differs from the tokens of {name}"
        )

    missing = set(old.ordinary) - set(vocabulary.ordinary)
    if missing and old.is_characters:
        raise ConfigError(
            f"the vocabulary lacks {sorted(missing)} of {name}: add them to data.extra_characters"
        )
