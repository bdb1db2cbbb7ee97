"""The root of the config tree: the keys, and the parts of a run that are built from them.

When a part is first read, the function with `@option` for it builds it, and reads what it needs from the tree. Each
function imports what it builds, so that wrong keys are refused before PyTorch is imported.
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from labml import experiment
from labml.configs import BaseConfigs, option

import configs.other_strategies  # noqa: F401, registers them
from configs.data import DataConfigs
from configs.keys import Key
from configs.masking import MaskingConfigs
from configs.model import ModelConfigs
from configs.seeds import derived_seed
from configs.training import CheckpointConfigs, ObjectiveConfigs, SampleConfigs, TrainingConfigs

if TYPE_CHECKING:
    import torch
    from torch import nn

    from distributed.processes import Processes
    from training.background import References
    from training.evaluator import Evaluator
    from training.loop import Trainer
    from training.schedule import Schedule
    from training.step import TrainingStep


class Configs(BaseConfigs):
    """The whole experiment."""

    name: Annotated[str, Key("name of the experiment; its runs are in LOGS/NAME", compared=False)] = "mlm"
    logs: Annotated[str, Key("folder for the runs; a relative path starts at the repository", compared=False)] = "logs"
    device: Annotated[str, Key("auto (the best available), cpu, cuda, cuda:N or mps", resume=True)] = "auto"
    seed: Annotated[int, Key("seed of every random draw", low=0, high=2**31 - 1, compared=False)] = 0
    initial_weights: Annotated[str, Key("a run whose best weights are the first ones; --init-from sets it")] = ""
    data: DataConfigs
    masking: MaskingConfigs
    objective: ObjectiveConfigs
    model: ModelConfigs
    training: TrainingConfigs
    checkpoint: CheckpointConfigs
    sample: SampleConfigs

    processes: "Processes"
    torch_device: "torch.device"
    is_sharded: bool
    network: "nn.Module"
    step: "TrainingStep"
    schedule: "Schedule"
    evaluator: "Evaluator"
    references: "References"
    prompts: list[str]
    trainer: "Trainer"


def configs_of(values: Mapping[str, Any]) -> Configs:
    """The config tree for resolved keys, without a labml experiment: for notebooks, tools and tests."""
    configs = Configs()
    configs._set_values(dict(values))
    return configs


def registered_configs(values: Mapping[str, Any]) -> Configs:
    """The config tree for resolved keys, as the configs of labml's current experiment."""
    configs = configs_of(values)
    experiment.configs(configs)
    return configs


@option(Configs.processes)
def processes(c: Configs) -> "Processes":
    from distributed.processes import current

    return current()


@option(Configs.torch_device)
def torch_device(c: Configs) -> "torch.device":
    from configs.devices import device_of_process

    return device_of_process(c.device)


@option(Configs.is_sharded)
def is_sharded(c: Configs) -> bool:
    return c.processes.n > 1 and c.training.parallel == "fsdp"


@option(Configs.network)
def network(c: Configs) -> "nn.Module":
    """The model with its initial weights, which depend on the seed alone, not on earlier random draws."""
    import torch

    from configs.contract import check_contract

    torch.manual_seed(derived_seed(c.seed, "weights"))
    device = torch.device("cpu") if c.is_sharded else c.torch_device
    model = c.model.architecture.to(device)
    check_contract(model, c.data.vocabulary.n_tokens, device, c.objective.pairs)
    if c.is_sharded:
        from distributed.sharding import shard

        shard(model, c.torch_device)
    return model


@option(Configs.step)
def step(c: Configs) -> "TrainingStep":
    import torch

    from training.step import TrainingStep

    training_step = TrainingStep(
        c.network,
        c.data.windows,
        c.masking.strategy,
        c.training.optimizer,
        chars_per_step=c.training.chars_per_step,
        grad_accum_steps=c.training.grad_accum_steps,
        grad_norm_clip=c.training.grad_norm_clip,
        autocast=c.training.autocast,
        processes=c.processes,
    )
    if not c.processes.is_first:
        torch.manual_seed(derived_seed(c.seed, f"process {c.processes.rank}"))  # dropout differs between processes
    return training_step


@option(Configs.schedule)
def schedule(c: Configs) -> "Schedule":
    from training.schedule import Budget, Schedule

    return Schedule(
        budget=Budget(c.training.max_steps, c.training.max_chars, c.training.max_seconds),
        stages=c.training.stage_rows,
        warmup=c.training.warmup,
        decay=c.training.decay,
        final_learning_rate=c.training.final_learning_rate,
        evaluations=c.training.evaluations,
        evaluations_per_sample=c.sample.every_evaluations or math.inf,
        seconds_per_checkpoint=c.checkpoint.every_seconds,
    )


@option(Configs.evaluator)
def evaluator(c: Configs) -> "Evaluator":
    from training.evaluator import Evaluator

    return Evaluator(
        model=c.network,
        validation=c.data.validation,
        mask_token=c.data.vocabulary.mask_token,
        corpus=c.data.loaded.name,
        references=c.references,
        with_bound=len(c.training.stage_rows) > len(c.training.stages),
        pairs_objective=c.objective.pairs,
        validation_pairs=c.data.validation_pairs,
        processes=c.processes,
    )


@option(Configs.references)
def reference_losses(c: Configs) -> "References":
    """The losses that the run is compared with."""
    from data.reference_losses import unigram_loss, without_counting
    from training.background import References

    n_ordinary = c.data.vocabulary.n_ordinary
    unigram = unigram_loss(*(counts[:n_ordinary] for counts in c.data.counts))
    known = {"uniform": math.log(n_ordinary), "unigram": unigram}
    why_not = without_counting(c.data.vocabulary, c.data.loaded)
    return References(c.data.loaded, known, is_complete_wanted=c.processes.is_first, why_not=why_not)


@option(Configs.prompts)
def prompts(c: Configs) -> list[str]:
    from configs.prompts import prompts_of

    return prompts_of(c.sample.prompts, c.data.loaded, c.data.vocabulary)


@option(Configs.trainer)
def trainer(c: Configs) -> "Trainer":
    from training.callbacks import sample
    from training.compilation import Compilation
    from training.loop import Trainer

    draw_samples = partial(sample, c.network, c.prompts, c.data.vocabulary, device=c.torch_device)
    # A graph cannot record what processes exchange, and the compiler does not know the hooks that gather a layer.
    cuda_graph = c.training.cuda_graph and c.processes.n == 1
    compilation = Compilation(c.step, is_wanted=c.training.compile and not c.is_sharded, cuda_graph=cuda_graph)
    return Trainer(c.step, c.schedule, c.evaluator, draw_samples, compilation)
