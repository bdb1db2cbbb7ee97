"""The root of the config tree: the keys, and the parts of a run that are built from them.

When a part is first read, the function with `@option` for it builds it, and reads what it needs
from the tree. Each function imports what it builds, so that wrong keys are refused before PyTorch
is imported.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from labml.configs import BaseConfigs, option

from configs import annotated, hugging_face, strategies  # noqa: F401, they register options
from configs.branch import Branch, derived_seed, is_reference, is_sharded
from configs.data import DataConfigs
from configs.keys import Key
from configs.masking import MaskingConfigs
from configs.model import ModelConfigs
from configs.training import ObjectiveConfigs, TrainingConfigs, layers_of
from distributed.launch import local_rank, n_started
from distributed.substitutes import in_all_processes
from training.schedule import Schedule
from training.trackers import TRACKERS

if TYPE_CHECKING:
    import torch
    from torch import nn

    from data.batch_contract import BatchSource
    from training.evaluation import Evaluator
    from training.loop import Trainer
    from training.objective import MaskedObjective
    from training.step import TrainingStep, Update


class CheckpointConfigs(Branch):
    """Keys `checkpoint.*`."""

    every_seconds: Annotated[
        float, Key("seconds between checkpoints", above=0, resume=True)
    ] = 60.0
    keep_at: Annotated[
        list,
        Key(
            "tokens, or steps or words, after which weights are kept: [1M, 5M, 1000 steps, 2M words]",
            resume=True,
        ),
    ] = []


class SampleConfigs(Branch):
    """Keys `sample.*`."""

    every_evaluations: Annotated[
        int, Key("evaluations per sample; 0: none", low=0, resume=True)
    ] = 5
    prompts: Annotated[
        list,
        Key("texts for the samples; empty: lines of the validation text", resume=True),
    ] = []


class TrackingConfigs(Branch):
    """Keys `tracking.*`."""

    also: Annotated[
        list,
        Key(
            f"other trackers that get each row: any of {', '.join(TRACKERS)}",
            resume=True,
            compared=False,
        ),
    ] = []


class Configs(BaseConfigs):
    """The whole experiment."""

    name: Annotated[
        str, Key("name of the experiment; its runs are in LOGS/NAME", compared=False)
    ] = "mlm"
    logs: Annotated[
        str,
        Key(
            "folder for the runs; a relative path starts at the repository",
            compared=False,
        ),
    ] = "logs"
    device: Annotated[
        str, Key("auto (the best available), cpu, cuda, cuda:N or mps", resume=True)
    ] = "auto"
    seed: Annotated[
        int, Key("seed of every random draw", low=0, high=2**31 - 1, compared=False)
    ] = 0
    initial_weights: Annotated[
        str, Key("a run whose best weights are the first ones; --init-from sets it")
    ] = ""
    callbacks: Annotated[
        list,
        Key(
            "your own callbacks, such as [my.py:MyCallback]",
            resume=True,
            reference=True,
        ),
    ] = []
    data: DataConfigs
    masking: MaskingConfigs
    objective: ObjectiveConfigs
    model: ModelConfigs
    training: TrainingConfigs
    checkpoint: CheckpointConfigs
    sample: SampleConfigs
    tracking: TrackingConfigs

    torch_device: "torch.device"
    network: "nn.Module"
    update: "Update"
    source: "BatchSource"
    step: "TrainingStep"
    schedule: Schedule
    evaluator: "Evaluator"
    trainer: "Trainer"

    def __init__(self, values: Mapping[str, Any]):
        super().__init__()
        self._set_values(dict(values))
        self._values = values

    def values(self) -> dict[str, Any]:
        """Every key with its value as the user wrote it."""
        return dict(self._values)

    def value_of(self, key: str) -> Any:
        """The value of a key as the user wrote it: reading its item gives the part that it names."""
        return self._values[key]

    def name_of(self, key: str) -> str:
        """A key with its value, for errors."""
        return f"{key}={self._values[key]}"


def configs_of(values: Mapping[str, Any]) -> Configs:
    """The config tree for resolved keys. It starts no labml experiment."""
    if any(is_reference(value) for value in values.values()):
        from configs.own_code import register

        register(values)
    return Configs(values)


@option(Configs.torch_device)
def torch_device(c: Configs) -> "torch.device":
    import torch

    from training.switches.device import set_for_device

    device = torch.device(c.device)
    if (
        c.device == "cuda" and n_started() > 1
    ):  # each process of torchrun has a device of its own
        device = torch.device("cuda", local_rank())
    set_for_device(device)
    return device


@option(Configs.network)
def network(c: Configs) -> "nn.Module":
    """The model with its initial weights, which depend on the seed alone, not on earlier random
    draws."""
    import torch

    torch.manual_seed(derived_seed(c.seed, "weights"))
    if is_sharded(c):
        from configs.model_contract import sharded_network

        return sharded_network(c)
    return c.model.architecture.to(c.torch_device)


def objective_of(c: Configs) -> "MaskedObjective":
    """The objective; in chunks if the logits of a batch are many."""
    from data.masking import n_masked_in
    from model import MaskedLanguageModel
    from training.chunked_objective import LOGITS_AT_ONCE, ChunkedObjective
    from training.objective import MaskedObjective
    from training.pair_objective import PairObjective

    if c.objective.pairs:
        return PairObjective(c.objective.loss)
    n_at_once = LOGITS_AT_ONCE // c.model.n_tokens
    # of one process; each of several has fewer
    n = c.training.chars_per_step // c.training.grad_accum_steps
    for stage in c.training.all_stages:
        n_masked = n_masked_in(stage.seq_len, stage.masking_prob)
        is_large = n // stage.seq_len * n_masked > n_at_once
        if is_large and isinstance(c.network, MaskedLanguageModel):
            return ChunkedObjective(c.objective.loss, n_at_once)
    return MaskedObjective(c.objective.loss)


@option(Configs.update)
def update(c: Configs) -> "Update":
    from training.step import Update

    if c.training.activation_checkpointing:
        from model.checkpointing import checkpoint_each

        key = "training.activation_checkpointing"
        checkpoint_each(layers_of(c.network, key, "training.grad_accum_steps"))
    return in_all_processes(Update)(
        c.network,
        objective_of(c),
        c.training.optimizer,
        grad_norm_clip=c.training.grad_norm_clip,
        autocast=c.training.autocast,
    )


@option(Configs.source)
def source(c: Configs) -> "BatchSource":
    if c.data.batches:
        from configs.own_code import own_batches

        return own_batches(c, objective_of(c))
    if c.data.is_packed:
        from configs.windows import check_takes_mask

        check_takes_mask(c.network)
    from data.masked_windows import MaskedWindows

    return MaskedWindows(c.data.training_windows, c.masking.strategy)


@option(Configs.step)
def step(c: Configs) -> "TrainingStep":
    from training.step import TrainingStep
    from training.switches.device import set_threads

    set_threads(c.training.threads)
    kind = TrainingStep
    if getattr(c.source, "learns", False):
        from training.learning_step import LearningStep

        kind = LearningStep
    return in_all_processes(kind)(
        c.source,
        c.update,
        chars_per_step=c.training.chars_per_step,
        grad_accum_steps=c.training.grad_accum_steps,
    )


@option(Configs.schedule)
def schedule(c: Configs) -> Schedule:
    return Schedule(
        c.training.max_steps,
        c.training.max_chars,
        c.training.max_seconds,
        stages=c.training.all_stages,
        warmup=c.training.warmup,
        decay=c.training.decay,
        final_learning_rate=c.training.final_learning_rate,
        evaluations=1 if c.training.max_steps == 0 else c.training.evaluations,
        seconds_per_checkpoint=c.checkpoint.every_seconds,
    )


@option(Configs.evaluator)
def evaluator(c: Configs) -> "Evaluator":
    from training.evaluation import Evaluator

    return in_all_processes(Evaluator)(
        c.network,
        c.data.validation_set,
        c.data.vocabulary.mask_token,
        c.data.loaded.name,
    )


@option(Configs.trainer)
def trainer(c: Configs) -> "Trainer":
    """The training loop without the callbacks of `configs.callbacks`."""
    from training.clock import TrainingClock
    from training.loop import Trainer

    return in_all_processes(Trainer)(
        c.step, c.schedule, c.evaluator, in_all_processes(TrainingClock)(c.torch_device)
    )
