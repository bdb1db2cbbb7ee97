"""The root of the config tree, and how its branches are wired."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

import torch
from labml import experiment
from labml.configs import BaseConfigs, option
from torch import nn

from configs.data import DataConfigs
from configs.devices import device_of_process
from configs.keys import ConfigError, Key
from configs.masking import MaskingConfigs
from configs.model import ModelConfigs, check_contract
from configs.prompts import prompts_of
from configs.seeds import derived_seed
from configs.training import CheckpointConfigs, ObjectiveConfigs, SampleConfigs, TrainingConfigs
from data.reference_losses import unigram_loss, without_counting
from distributed.processes import Processes, current
from distributed.sharding import shard
from training.background import References
from training.callbacks import sample
from training.compilation import Compilation
from training.evaluator import Evaluator
from training.loop import Trainer
from training.schedule import Budget, Schedule
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

    # Computed by the function below with @option for it.
    processes: Processes
    torch_device: torch.device
    network: nn.Module
    step: TrainingStep
    schedule: Schedule
    evaluator: Evaluator
    references: References
    prompts: list[str]
    trainer: Trainer


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


@option(Configs.data, "configs")
def _data(c: Configs) -> DataConfigs:
    conf = DataConfigs()
    conf.set_default(DataConfigs.device, func=lambda: c.torch_device)
    conf.set_default(DataConfigs.seed, func=lambda: c.seed)
    conf.set_default(DataConfigs.longest, func=lambda: max(row["seq_len"] for row in c.training.stages))
    conf.set_default(DataConfigs.shortest, func=lambda: min(row["seq_len"] for row in c.training.stages))
    conf.set_default(DataConfigs.pairs, func=lambda: pairs_objective(c))
    return conf


@option(Configs.masking, "configs")
def _masking(c: Configs) -> MaskingConfigs:
    conf = MaskingConfigs()
    conf.set_default(MaskingConfigs.device, func=lambda: c.torch_device)
    conf.set_default(MaskingConfigs.seed, func=lambda: c.seed)
    conf.set_default(MaskingConfigs.vocabulary, func=lambda: c.data.vocabulary)
    conf.set_default(MaskingConfigs.training_ids, func=lambda: c.data.training_ids)
    conf.set_default(MaskingConfigs.counts, func=lambda: c.data.counts)
    conf.set_default(MaskingConfigs.corpus, func=lambda: c.data.loaded)
    return conf


@option(Configs.model, "configs")
def _model(c: Configs) -> ModelConfigs:
    conf = ModelConfigs()
    conf.set_default(ModelConfigs.n_tokens, func=lambda: c.data.vocabulary.n_tokens)
    conf.set_default(ModelConfigs.n_segments, func=lambda: 2 if pairs_objective(c) else 0)
    return conf


@option(Configs.training, "configs")
def _training(c: Configs) -> TrainingConfigs:
    conf = TrainingConfigs()
    conf.set_default(TrainingConfigs.network, func=lambda: c.network)
    conf.set_default(TrainingConfigs.d_model, func=lambda: c.model.d_model)
    conf.set_default(TrainingConfigs.device, func=lambda: c.torch_device)
    conf.set_default(TrainingConfigs.masking_prob, func=lambda: c.masking.masking_prob)
    conf.set_default(TrainingConfigs.processes, func=lambda: c.processes)
    return conf


def pairs_objective(c: Configs) -> str:
    """The objective on pairs of text, nsp or sop; empty if there is none."""
    return "nsp" if c.objective.nsp else "sop" if c.objective.sop else ""


@option(Configs.processes)
def started(c: Configs) -> Processes:
    return current()


@option(Configs.torch_device)
def by_name(c: Configs) -> torch.device:
    return device_of_process(c.device)


@option(Configs.network)
def on_device(c: Configs) -> nn.Module:
    """The model with its initial weights, which depend on the seed alone, not on earlier random draws."""
    torch.manual_seed(derived_seed(c.seed, "weights"))
    model, device = c.model.architecture, torch.device("cpu") if wants_sharding(c) else c.torch_device
    check_contract(model.to(device), c.data.vocabulary.n_tokens, device)
    objective = pairs_objective(c)
    if objective and not hasattr(model, "forward_pairs"):
        raise ConfigError(f"objective.{objective}: this model.architecture has no forward_pairs, use modern")
    if wants_sharding(c):
        shard(model, c.torch_device)
    return model


def wants_sharding(c: Configs) -> bool:
    return c.processes.n > 1 and c.training.parallel == "fsdp"


@option(Configs.step)
def training_step(c: Configs) -> TrainingStep:
    step = TrainingStep(
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
    return step


@option(Configs.schedule)
def by_keys(c: Configs) -> Schedule:
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
def by_protocol(c: Configs) -> Evaluator:
    return Evaluator(
        model=c.network,
        validation=c.data.validation,
        mask_token=c.data.vocabulary.mask_token,
        corpus=c.data.loaded.name,
        references=c.references,
        with_bound=len(c.training.stage_rows) > len(c.training.stages),
        pairs_objective=pairs_objective(c),
        validation_pairs=c.data.validation_pairs,
        processes=c.processes,
    )


@option(Configs.references)
def in_background(c: Configs) -> References:
    """The losses that the run is compared with."""
    n_ordinary = c.data.vocabulary.n_ordinary
    unigram = unigram_loss(*(counts[:n_ordinary] for counts in c.data.counts))
    known = {"uniform": math.log(n_ordinary), "unigram": unigram}
    why_not = without_counting(c.data.vocabulary, c.data.loaded)
    return References(c.data.loaded, known, is_complete_wanted=c.processes.is_first, why_not=why_not)


@option(Configs.prompts)
def checked_prompts(c: Configs) -> list[str]:
    return prompts_of(c.sample.prompts, c.data.loaded, c.data.vocabulary)


@option(Configs.trainer)
def wire(c: Configs) -> Trainer:
    """The trainer, with everything that it needs."""
    draw_samples = partial(sample, c.network, c.prompts, c.data.vocabulary, device=c.torch_device)
    # A graph cannot record what processes exchange, and the compiler does not know the hooks that gather a layer.
    cuda_graph = c.training.cuda_graph and c.processes.n == 1
    compilation = Compilation(c.step, is_wanted=c.training.compile and not wants_sharding(c), cuda_graph=cuda_graph)
    return Trainer(c.step, c.schedule, c.evaluator, draw_samples, compilation)
