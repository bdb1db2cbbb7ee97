"""Warmed-up steps, timed in turns, so that disturbances of the machine affect all candidates equally."""

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

import torch

from configs.experiment import Configs
from training.compilation import Compilation
from training.recording import EAGER_STEPS
from training.schedule import Stage
from training.step import TrainingStep

Key = TypeVar("Key")
Result = TypeVar("Result")


def take_turns(candidates: Mapping[Key, Callable[[], Result]], rounds: int, warmup: int = 0) -> dict[Key, list[Result]]:
    """Call every candidate once per round and return its results, without those of the first `warmup` rounds.

    Each round begins with another candidate. Prints how long it will take once the first round is over.
    """
    names = list(candidates)
    results: dict[Key, list[Result]] = {name: [] for name in names}
    began = time.perf_counter()
    for i in range(warmup + rounds):
        first = i % len(names)
        for name in names[first:] + names[:first]:
            results[name].append(candidates[name]())
        if i == 0:
            minutes = (time.perf_counter() - began) * (warmup + rounds - 1) / 60
            print(f"about {minutes:.0f} minutes to go", flush=True)
    return {name: found[warmup:] for name, found in results.items()}


def seconds_per_call(call: Callable[[], torch.Tensor], n: int) -> float:
    """The mean over `n` calls, including the device's work."""
    began = time.perf_counter()
    for _ in range(n):
        result = call()
    result.flatten()[0].item()  # waits for the device
    return (time.perf_counter() - began) / n


def warmed_up_step(configs: Configs) -> tuple[TrainingStep, Stage]:
    """The step after some updates in its first stage, and that stage: compiled and recorded as the configs say.

    Raises RuntimeError if compiling or recording fails.
    """
    step, stage = configs.step, configs.training.stage_rows[0]
    compilation = Compilation(step, is_wanted=configs.training.compile, cuda_graph=configs.training.cuda_graph)
    compilation.compile([stage], _raise_failure)
    for _ in range(EAGER_STEPS):
        step(stage)
    if not compilation.is_ready(stage):
        compilation.prepare(stage, _raise_failure)
    return step, stage


def _raise_failure(line: str) -> None:
    if line.startswith("training without"):
        raise RuntimeError(line)
