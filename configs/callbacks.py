"""The callbacks of a run, which write, steer or check it."""

import math

import torch

from configs.compiled_code import kept_code
from configs.experiment import Configs, is_sharded
from configs.keys import ConfigError
from configs.outputs import prompts
from data.references.losses import unigram_loss, without_counting
from data.references.process import References
from data.windows import WindowBatch
from data.windows.pairs import held_out_pairs
from distributed.exchange_time import ExchangeTime
from distributed.launch import n_started
from distributed.substitutes import in_all_processes
from runs.run_folder import RunFolder
from training.callbacks.any_order_bound import AnyOrderBound
from training.callbacks.callback import Callback
from training.callbacks.compiler import Compiler
from training.callbacks.health_checks import HealthChecks
from training.callbacks.knobs import KnobPanel
from training.callbacks.per_character import PerCharacter
from training.callbacks.reference_losses import ReferenceLosses
from training.callbacks.samples import Samples
from training.callbacks.speed import DataWaiting, ShareOfPeak
from training.callbacks.threads import ThreadChoice
from training.callbacks.weight_norm import WeightNorm
from training.checkpoint import environment
from training.pair_objective import PairMeasure
from training.resume import Recorder


def writing(c: Configs, run: RunFolder) -> list[Callback]:
    """The callbacks that write a run. Only the first process has them, before those of all
    processes."""
    facts = environment(c.torch_device, c.compiled is not None, c.training.autocast, n_started())
    why_not = without_counting(c.data.vocabulary, c.data.loaded)
    references = References(c.data.loaded, simple_losses(c), why_not=why_not)
    in_background = c.torch_device.type != "cpu" and not is_sharded(c)
    recorder = in_all_processes(Recorder)(run, facts, in_background=in_background)
    exchanges = [ExchangeTime()] if n_started() > 1 else []
    return [*exchanges, ReferenceLosses(run, references, c.plan.curve), recorder]


def steering(c: Configs) -> list[Callback]:
    """The callbacks that change or check the training, in all processes. Raises ConfigError for a
    wrong prompt."""
    found: list[Callback] = [
        in_all_processes(KnobPanel)(),
        HealthChecks(simple_losses(c)["unigram"]),
        WeightNorm(),
    ]
    found.append(ShareOfPeak(n_started()))
    if c.data.stored_tokens:
        found.append(DataWaiting())
    if c.data.vocabulary.lengths is not None:
        found.append(PerCharacter(c.data.vocabulary.lengths))
    if c.compiled:
        found.append(Compiler(c.compiled, around=kept_code))
    if may_choose_threads(c):
        if c.compiled:
            # compiled code asks for the number at each call
            torch._inductor.config.cpp.dynamic_threads = True
        found.append(ThreadChoice())
    if c.cuda_graphs:
        found.append(c.cuda_graphs)
    if c.sample.every_evaluations:
        found.append(Samples(prompts(c), c.data.vocabulary, c.sample.every_evaluations))
    if len(c.training.all_stages) > len(c.training.stages):  # some row has several masking rates
        found.append(AnyOrderBound())
    if c.objective.pairs:
        found.append(PairMeasure(c.objective.pairs, validation_pairs(c)))
    return found


def may_choose_threads(c: Configs) -> bool:
    """Whether no key fixes the number and only seconds limit the run, so that it does not repeat
    bit for bit anyway."""
    is_limited = c.training.max_steps is not None or c.training.max_chars is not None
    is_free = not is_limited and not c.training.threads
    return (
        is_free
        and c.torch_device.type == "cpu"
        and n_started() == 1
        and torch.get_num_threads() > 1
    )


def validation_pairs(c: Configs) -> WindowBatch:
    """Pairs of the validation text for an objective on pairs, the same for every run on every
    device."""
    if not hasattr(c.network, "forward_pairs"):
        raise ConfigError(
            f"objective.{c.objective.pairs}: this model.architecture has no forward_pairs, use modern"
        )
    ids = c.data.stored_tokens.validation if c.data.stored_tokens else c.data.validation_ids.cpu()
    return held_out_pairs(
        c.objective.pairs, ids, c.data.loaded.validation, c.data.vocabulary, c.torch_device
    )


def simple_losses(c: Configs) -> dict[str, float]:
    """The losses of guessing, in nats: all tokens alike, and each by its frequency."""
    n_ordinary = c.data.vocabulary.n_ordinary
    unigram = unigram_loss(*(counts[:n_ordinary] for counts in c.data.counts))
    return {"uniform": math.log(n_ordinary), "unigram": unigram}
