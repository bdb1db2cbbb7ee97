"""Builds the parts of a run from the user's own code, and checks what it returns before training.

docs/own_code.md describes each contract. `configs.references` finds and loads the files.
"""

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from labml.configs import option
from torch import nn
from torch.optim import Optimizer

from configs.branch import Branch, is_reference
from configs.keys import ConfigError
from configs.masking import MaskingConfigs
from configs.model import ModelConfigs
from configs.model_contract import check_own_model
from configs.references import OwnCode, load, naming_the_line
from configs.segment_masker import build_masker
from configs.training import ObjectiveConfigs, TrainingConfigs
from data.batch_contract import BatchSource, check_batch
from data.corpus import Corpus
from data.documents import stored_documents
from data.masking import Masker
from data.masking.segmenters import Segmenter, Strategy
from data.tasks.task import Task
from data.text.sources import CorpusError
from data.tokens.choose import load_vocabulary
from data.tokens.custom import CustomVocabulary
from data.vocabulary import MASK, PAD, Vocabulary
from runs.errors import StoppedError
from runs.run_folder import RunFolder
from training.callbacks.callback import Callback, Row
from training.evaluation import evaluating
from training.loop import Trainer
from training.objective import Loss, MaskedObjective

SOURCE = {"draw": 4, "state_dict": 0, "load_state_dict": 1}  # methods, and arguments


def register(values: Mapping[str, Any]) -> None:
    """Make each function or class of the user an option of its key."""
    for key, item, build in (
        ("model.architecture", ModelConfigs.architecture, own_model),
        ("masking.strategy", MaskingConfigs.strategy, own_masker),
        ("objective.loss", ObjectiveConfigs.loss, own_loss),
        ("training.optimizer", TrainingConfigs.optimizer, own_optimizer),
    ):
        if is_reference(values.get(key)):
            _register(item, key, values[key], build)


@cache
def _register(
    item: Any, key: str, reference: str, build: Callable[[Any, OwnCode], Any]
) -> None:
    option(item, reference)(lambda c: build(c, load(key, reference)))


def own_model(c: Branch, own: OwnCode) -> nn.Module:
    """The user's model, called as the training step calls it."""
    model = own(c)
    own.check_type(model, nn.Module, "a torch.nn.Module")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise own.error("the model has no parameters to train")
    check_own_model(model, c.root())
    return model


def own_optimizer(c: Branch, own: OwnCode) -> list[Optimizer]:
    made = own(c)
    optimizers = list(made) if isinstance(made, list | tuple) else [made]
    for each in optimizers or [None]:
        own.check_type(each, Optimizer, "a torch.optim.Optimizer or a list of them")
    return optimizers


def own_strategy(own: OwnCode) -> Strategy:
    """The user's strategy. Its segmenter is checked when it is made."""
    offsets = torch.arange(16).view(2, 8)
    generator = torch.Generator().manual_seed(0)
    contract = "called with offsets [2, 8], its segmenter must return units and weights, both [2, 8]"

    def strategy(text: str) -> Segmenter:
        segmenter = own(text)
        own.check_type(segmenter, Segmenter, "a Segmenter")
        own.check_shapes(
            contract, lambda: segmenter(offsets, generator, 0.0), [2, 8], [2, 8]
        )
        return segmenter

    return strategy


def own_masker(c: MaskingConfigs, own: OwnCode) -> Masker:
    return build_masker(c, own_strategy(own))


def own_loss(c: Branch, own: OwnCode) -> Loss:
    """The user's loss. `MaskedObjective` leaves out the labels that do not count."""
    loss = own() if isinstance(own.value, type) else own.value
    device = c.root().torch_device
    if isinstance(loss, nn.Module):
        loss.to(device)
    n_tokens = c.root().data.vocabulary.n_tokens
    logits = (
        torch.linspace(-1, 1, 5 * n_tokens, device=device)
        .view(5, n_tokens)
        .requires_grad_()
    )
    labels = torch.arange(5, device=device) % n_tokens
    contract = (
        f"called with logits [5, {n_tokens}] and labels [5], it must return losses [5]"
    )
    own.check_signature(loss, 2)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        (losses,) = own.check_shapes(contract, lambda: [loss(logits, labels)], [5])
    if not losses.requires_grad:
        raise own.error("its losses have no gradient")
    return loss


def own_tokenizer(reference: str) -> Any:
    """The user's tokenizer; `data.tokens.custom` has its protocol."""
    own = load("data.tokens", reference)
    tokenizer = own()
    with naming_the_line(f"{own}: it must have a list `tokens` and a method `encode`"):
        list(tokenizer.tokens)
        own.check_signature(tokenizer.encode, 1, "encode")
    return tokenizer


def own_vocabulary(reference: str, special_tokens: Iterable[str]) -> Vocabulary:
    tokenizer = own_tokenizer(reference)
    return CustomVocabulary(
        tokenizer, {"reference": reference}, (PAD, MASK, *special_tokens)
    )


def vocabulary_of_run(run: RunFolder, values: dict[str, Any]) -> Vocabulary:
    """The vocabulary that a run has saved; `values` name its tokenizer, if it is the user's."""
    tokens = values["data.tokens"]
    tokenizer = own_tokenizer(tokens) if is_reference(tokens) else None
    return load_vocabulary(run.vocabulary(), tokenizer)


def own_corpus(reference: str) -> Corpus:
    """The text of the strings that the user's function yields."""
    own = load("data.corpus", reference)
    documents = own()
    if isinstance(documents, str):
        raise own.error("it must yield strings, not return one")
    own.check_type(documents, Iterable, "strings, one per document")
    try:
        with naming_the_line(f"{own}: it must yield strings"):
            return stored_documents(reference, documents)
    except CorpusError as error:
        raise ConfigError(f"data.corpus={error}") from error


def own_batches(c: Any, objective: MaskedObjective) -> BatchSource:
    """The user's source of batches. The batch that is checked is drawn again in training."""
    own = load("data.batches", c.data.batches)
    source = own(c.data)
    stage = c.training.all_stages[0]
    batch_size = c.training.chars_per_step // (
        stage.seq_len * c.training.grad_accum_steps
    )
    shape = (batch_size, stage.seq_len)
    if not all(hasattr(source, method) for method in SOURCE):
        kind = type(source).__name__
        raise own.error(
            f"it must return an object with {', '.join(SOURCE)}, not {kind}"
        )
    contract = f"{own}: its draw{(*shape, stage.masking_prob, 0.0)} must return a Batch"
    with naming_the_line(contract):
        for method, n_arguments in SOURCE.items():
            own.check_signature(getattr(source, method), n_arguments, method)
        before = deepcopy(source.state_dict())
        batch = source.draw(*shape, stage.masking_prob, 0.0)
        check_batch(batch, *shape, c.data.vocabulary.n_tokens)
    with naming_the_line(f"{own}: load_state_dict must take what state_dict returned"):
        source.load_state_dict(before)
    with (
        naming_the_line(f"{own}: the model cannot be trained on its batches"),
        evaluating(c.network, c.torch_device),
    ):
        objective.outcome(c.network, batch.to(c.torch_device))
    return source


def own_callback(reference: str) -> Callback:
    """The user's callback. Its class may have any of the hooks of `Callback`."""
    own = load("callbacks", reference)
    if not isinstance(own.value, type):
        raise own.error("it must be a class")
    hooks = [name for name, value in vars(Callback).items() if callable(value)]
    given = [name for name in hooks if hasattr(own.value, name)]
    if not given:
        raise own.error(f"it has none of the hooks {', '.join(hooks)}")
    for name in given:
        n_arguments = getattr(Callback, name).__code__.co_argcount
        own.check_signature(getattr(own.value, name), n_arguments, name)
    # adds the hooks that it lacks
    hooks = {"measured": checked(own)} if "measured" in given else {}
    return replace(own, value=type(own.name, (own.value, Callback), hooks))()


def checked(own: OwnCode) -> Callable[..., None]:
    """The hook `measured` of a user's callback, which may add only what a row can hold."""

    def measured(self: Callback, trainer: Trainer, row: Row, evaluation: Any) -> None:
        before = dict(row)
        own.value.measured(self, trainer, row, evaluation)
        for name, value in row.items():
            if before.get(name) is not value and not isinstance(
                value, float | int | str
            ):
                kind = type(value).__name__
                raise StoppedError(
                    f"{own}: {name} must be a number or a string, not {kind}"
                )

    return measured


def own_task(reference: str, use: str) -> Task:
    """The user's task, for a use: `report` or `selection`."""
    own = load("--task", reference)
    task = own(use)
    own.check_type(task, Task, "a data.tasks.Task")
    return task
