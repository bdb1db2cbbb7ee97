"""What makes a training step faster: PyTorch's compiler, and CUDA graphs. Each replaces a part of
the step before training begins, or while another process compiles."""

import hashlib
import multiprocessing
import os
import signal
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from configs.branch import is_sharded
from configs.compiled_code import is_kept, kept_code
from configs.experiment import Configs, configs_of
from distributed.launch import n_started
from distributed.substitutes import in_all_processes
from training.callbacks.callback import Callback
from training.callbacks.compiler import Compiler, CompilerMeanwhile
from training.callbacks.threads import ThreadAdvice, ThreadChoice
from training.compilation import Compiled
from training.cuda_graph import CudaGraphs, can_record
from training.recorded_draws import RecordedDraws, generators_of
from training.switches.compiler import (
    let_compiled_code_change_threads,
    set_for_compiling_beside_training,
)
from training.tracking import be_quiet

# a run that is shorter might end before the other process has compiled
FEWEST_SECONDS = 60.0


def compiled_objective(c: Configs) -> Compiled | None:
    """The objective of the training, which `Compiled.compile` compiles; None if the keys turn that
    off. The compiler does not know the hooks that gather a sharded layer."""
    if not c.training.compile or is_sharded(c):
        return None
    return in_all_processes(Compiled)(c.update.objective)


def thread_callback(c: Configs) -> ThreadChoice | ThreadAdvice | None:
    """Chooses the number of threads if only seconds limit the run, and otherwise says if another
    number would be much faster; None if the number is fixed."""
    if not has_free_threads(c):
        return None
    return ThreadChoice() if follows_clock(c) else ThreadAdvice()


def compiler(c: Configs, threads: Callback | None) -> Compiler | None:
    """Has the objective compiled before the first step; or meanwhile, if `threads` chooses their
    number and the code is not kept yet."""
    compiled = compiled_objective(c)
    if compiled is None:
        return None

    name = code_name(c)
    around = partial(kept_code, name=name)
    if not isinstance(threads, ThreadChoice):
        return Compiler(compiled, around)

    let_compiled_code_change_threads()
    is_short = (c.training.max_seconds or 0.0) < FEWEST_SECONDS
    # a source of the user's may not be meant to be built twice
    if is_short or c.data.batches or is_kept(name):
        return Compiler(compiled, around)
    return CompilerMeanwhile(compiled, around, compiling_process(c, name), threads)


def follows_clock(c: Configs) -> bool:
    """Whether a run may choose its number of threads, and when it compiles: only seconds limit it,
    so that it does not repeat bit for bit anyway."""
    return has_free_threads(c) and not (c.training.max_steps or c.training.max_chars)


def has_free_threads(c: Configs) -> bool:
    """Whether a run computes on a CPU, with several threads whose number no key fixes."""
    is_alone_on_cpu = c.torch_device.type == "cpu" and n_started() == 1
    is_free = is_alone_on_cpu and not c.training.threads
    return is_free and torch.get_num_threads() > 1


def code_name(c: Configs) -> str:
    """Almost certainly the same for two runs only if they have the same compiled code."""
    rows = [(each.seq_len, each.masking_prob) for each in c.training.all_stages]
    described = (torch.__version__, c.network, c.training.autocast, rows)
    return hashlib.sha256(str(described).encode()).hexdigest()[:16]


def compiling_process(c: Configs, name: str) -> BaseProcess:
    """A process that compiles what a run needs into the folder of compiled code, not yet started.
    It ends with the run."""
    values = c.values() | {"data.corpus": c.data.loaded.name}
    context = multiprocessing.get_context("spawn")
    return context.Process(target=_compile, args=(values, name), daemon=True)


def _compile(values: Mapping[str, Any], name: str) -> None:
    # the run handles Ctrl-C and ends this process
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    be_quiet()
    with (
        open(os.devnull, "w") as nowhere,
        redirect_stdout(nowhere),
        redirect_stderr(nowhere),
    ):
        c = configs_of(values)
        compiled = compiled_objective(c)
        assert compiled is not None
        set_for_compiling_beside_training()
        compiled.compile(c.step, c.training.all_stages, print, kept_code(print, name))


def cuda_graphs(c: Configs) -> CudaGraphs | None:
    """CUDA graphs of the updates, for a GPU. What processes exchange cannot be recorded."""
    is_possible = c.torch_device.type == "cuda" and n_started() == 1
    if not c.training.cuda_graph or not is_possible or not can_record(c.update):
        return None
    return CudaGraphs(c.update)


def recorded_draws(c: Configs) -> RecordedDraws | None:
    """Recorded draws of batches, where updates are recorded too."""
    generators = generators_of(c.source)
    if not generators or not cuda_graphs(c):
        return None
    return RecordedDraws(c.source.draw, generators)
