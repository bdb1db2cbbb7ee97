"""Builds the parts of a run from the user's own code, and checks what it returns before training.

docs/own_code.md describes each contract. `configs.references` finds and loads the files.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from configs.branch import is_reference
from configs.keys import ConfigError
from configs.references import OwnCode, load
from runs.run_folder import RunFolder

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from configs.experiment import Configs
    from configs.masking import MaskingConfigs
    from configs.model import ModelConfigs
    from configs.training import ObjectiveConfigs, TrainingConfigs
    from data.batch import BatchSource
    from data.corpus import Corpus
    from data.masking import Masker
    from data.masking.segmenters import Segmenter, Strategy
    from data.tasks.task import Task
    from data.vocabulary import Vocabulary
    from training.callbacks.callback import Callback
    from training.objective import Loss


def own_model(c: "ModelConfigs", own: OwnCode) -> "nn.Module":
    """The user's model; `configs.experiment.check_contract` calls it."""
    from torch import nn

    model = own(c)
    if not isinstance(model, nn.Module):
        raise own.error(f"it must return a torch.nn.Module, not {_type(model)}")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise own.error("the model has no parameters to train")
    return model


def own_optimizer(c: "TrainingConfigs", own: OwnCode) -> "list[Optimizer]":
    from torch.optim import Optimizer

    made = own(c)
    optimizers = list(made) if isinstance(made, list | tuple) else [made]
    wrong = [each for each in optimizers if not isinstance(each, Optimizer)]
    if wrong or not optimizers:
        what = _type(wrong[0]) if wrong else "an empty list"
        raise own.error(f"it must return a torch.optim.Optimizer or a list of them, not {what}")
    return optimizers


def own_strategy(own: OwnCode) -> "Strategy":
    """The user's strategy. Its segmenter is checked when it is made."""
    from data.masking.segmenters import Segmenter

    def strategy(text: str) -> "Segmenter":
        segmenter = own(text)
        if not isinstance(segmenter, Segmenter):
            raise own.error(f"it must return a Segmenter, not {_type(segmenter)}")
        _check_segmenter(own, segmenter)
        return segmenter

    return strategy


def own_masker(c: "MaskingConfigs", own: OwnCode) -> "Masker":
    from configs.masking import build_masker

    return build_masker(c, own_strategy(own))


def _check_segmenter(own: OwnCode, segmenter: "Segmenter") -> None:
    import torch

    offsets = torch.arange(16).view(2, 8)
    contract = (
        "called with offsets [2, 8], its segmenter must return units and weights, both [2, 8]"
    )
    with own.checked(contract):
        returned = segmenter(offsets, torch.Generator().manual_seed(0), 0.0)
        shapes = [list(part.shape) for part in returned]
    if shapes != [[2, 8], [2, 8]]:
        raise own.error(f"{contract}, not {' and '.join(map(str, shapes))}")


def own_loss(c: "ObjectiveConfigs", own: OwnCode) -> "Loss":
    """The user's loss. `MaskedObjective` leaves out the labels that do not count."""
    import torch
    from torch import nn

    loss = own() if isinstance(own.value, type) else own.value
    if isinstance(loss, nn.Module):
        loss.to(c.root().torch_device)
    n_tokens = c.root().data.vocabulary.n_tokens
    device = c.root().torch_device
    logits = torch.linspace(-1, 1, 5 * n_tokens, device=device).view(5, n_tokens)
    logits.requires_grad_()
    contract = f"called with logits [5, {n_tokens}] and labels [5], it must return losses [5]"
    own.check_signature(loss, 2)
    with own.checked(contract), torch.random.fork_rng([device] if device.type == "cuda" else []):
        losses = loss(logits, torch.arange(5, device=device) % n_tokens)
        shape = list(losses.shape)
        is_trainable = losses.requires_grad
    if shape != [5]:
        raise own.error(f"{contract}, not {shape}")
    if not is_trainable:
        raise own.error("its losses have no gradient")
    return loss


def own_tokenizer(reference: str) -> Any:
    """The user's tokenizer; `data.tokens.custom` has its protocol."""
    own = load("data.tokens", reference)
    tokenizer = own()
    with own.checked("it must have a list `tokens` and a method `encode`"):
        list(tokenizer.tokens)
        own.check_signature(tokenizer.encode, 1, "encode")
    return tokenizer


def own_vocabulary(reference: str, special_tokens: Sequence[str]) -> "Vocabulary":
    from data.tokens.custom import CustomVocabulary
    from data.vocabulary import MASK, PAD

    tokenizer = own_tokenizer(reference)
    return CustomVocabulary(tokenizer, {"reference": reference}, (PAD, MASK, *special_tokens))


def vocabulary_of_run(run: RunFolder, values: Mapping[str, Any]) -> "Vocabulary":
    """The vocabulary that a run has saved; `values` name its tokenizer, if it is the user's."""
    from data.tokens.choose import load_vocabulary

    tokens = values["data.tokens"]
    tokenizer = own_tokenizer(tokens) if is_reference(tokens) else None
    return load_vocabulary(run.vocabulary(), tokenizer)


def own_corpus(reference: str) -> "Corpus":
    """The text of the strings that the user's function yields."""
    from data.documents import joined
    from data.text.sources import CorpusError

    own = load("data.corpus", reference)
    documents = own()
    if isinstance(documents, str) or not isinstance(documents, Iterable):
        raise own.error(f"it must yield strings, one per document, not return {_type(documents)}")
    try:
        with own.checked("it must yield strings, one per document"):
            return joined(reference, documents)
    except CorpusError as error:
        raise ConfigError(f"data.corpus={error}") from error


def own_batches(c: "Configs") -> "BatchSource":
    """The user's source of batches. The batch that is checked is drawn again in training."""
    from data.batch_contract import check_batch

    own = load("data.batches", c.data.batches)
    source = own(c.data)
    stage = c.training.all_stages[0]
    batch_size = c.training.chars_per_step // (stage.seq_len * c.training.grad_accum_steps)
    contract = (
        f"its draw({batch_size}, {stage.seq_len}, {stage.masking_prob:g}, 0.0) must return a Batch"
    )
    with own.checked(contract):
        for method, n_arguments in {"draw": 4, "state_dict": 0, "load_state_dict": 1}.items():
            own.check_signature(getattr(source, method), n_arguments, method)
        before = deepcopy(source.state_dict())
        batch = source.draw(batch_size, stage.seq_len, stage.masking_prob, 0.0)
        source.load_state_dict(before)
    try:
        check_batch(batch, batch_size, stage.seq_len, c.data.vocabulary.n_tokens)
    except ValueError as error:
        raise own.error(f"{contract}: {error}") from error
    return source


def own_callbacks(references: Sequence[str]) -> "list[Callback]":
    """The user's callbacks, in order. A class may have any of the hooks of `Callback`."""
    return [_own_callback(load("callbacks", reference)) for reference in references]


def _own_callback(own: OwnCode) -> "Callback":
    from training.callbacks.callback import Callback

    if not isinstance(own.value, type):
        raise own.error("it must be a class")
    hooks = [name for name, value in vars(Callback).items() if callable(value)]
    given = [name for name in hooks if getattr(own.value, name, None) is not None]
    if not given:
        raise own.error(f"it has none of the hooks {', '.join(hooks)}")
    for name in given:
        n_arguments = getattr(Callback, name).__code__.co_argcount
        own.check_signature(getattr(own.value, name), n_arguments, name)
    if not issubclass(own.value, Callback):
        # adds the hooks that it lacks
        named = type(own.name, (own.value, Callback), {"__module__": own.value.__module__})
        own = OwnCode(own.key, own.path, own.name, named)
    return own()


def own_task(reference: str, use: str) -> "Task":
    """The user's task, for a use: `report` or `selection`."""
    from data.tasks.task import Task

    own = load("--task", reference)
    task = own(use)
    if not isinstance(task, Task):
        raise own.error(f"it must return a data.tasks.Task, not {_type(task)}")
    return task


def _type(value: Any) -> str:
    return type(value).__name__
