"""Chooses the number of threads, or says which one is faster."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from training.callbacks.callback import Callback, Row, Weights
from training.compilation import without_side_effects
from training.evaluation import Evaluation
from training.loop import Trainer
from training.schedule import Stage, stage_at
from training.step import TrainingStep

TURNS = 5
ENOUGH_SECONDS = 1.0  # of calls; slow ones take fewer turns
CLEARLY_FASTER = 0.9  # of the time of a step; otherwise the number of threads stays
WORTH_SAYING = 0.5


class ThreadChoice(Callback):
    """Computes with one thread or with all of them, whichever is faster now.

    The threads of a step wait for each other at every operation. Beside another program that keeps
    a core busy, all wait for the thread on this core, and one thread is faster.
    """

    def __init__(self) -> None:
        self.most = torch.get_num_threads()

    def begin(self, trainer: Trainer) -> None:
        self.choose(trainer)

    def measured(self, trainer: Trainer, row: Row, evaluation: Evaluation) -> None:
        row["threads"] = torch.get_num_threads()

    def evaluated(self, trainer: Trainer, row: Row, best: Weights | None) -> None:
        self.choose(trainer)

    def choose(self, trainer: Trainer) -> None:
        """Measure both, and change the number if the other one is clearly faster; the clock does
        not run."""
        progress = trainer.progress()
        if progress >= 1:
            return
        now = torch.get_num_threads()
        other = self.most if now == 1 else 1
        stage = stage_at(trainer.schedule.stages, progress, trainer.step)
        seconds = seconds_per_gradient(trainer.training_step, stage, (now, other))
        faster = other if seconds[other] < CLEARLY_FASTER * seconds[now] else now
        torch.set_num_threads(faster)

        if faster != now:
            threads = "1 thread is" if faster == 1 else f"{faster} threads are"
            trainer.report(
                f"{threads} faster now than {now} (training.threads=N fixes the number)"
            )


class ThreadAdvice(Callback):
    """Says before the first step if one thread is much faster than all of them, to the user of a
    run that repeats bit for bit: results depend on the number, so it stays."""

    def begin(self, trainer: Trainer) -> None:
        progress = trainer.progress()
        if progress >= 1:
            return
        most = torch.get_num_threads()
        stage = stage_at(trainer.schedule.stages, progress, trainer.step)
        seconds = seconds_per_gradient(trainer.training_step, stage, (most, 1))
        torch.set_num_threads(most)
        if seconds[1] < WORTH_SAYING * seconds[most]:
            times = seconds[most] / seconds[1]
            trainer.report(
                f"beside the other work of this machine, a step with {most} threads takes"
                f" {times:.1f} times as long as with one: consider training.threads=1"
            )


def seconds_per_gradient(
    step: TrainingStep, stage: Stage, numbers: Sequence[int]
) -> dict[int, float]:
    """The mean time of computing a gradient with each number of threads."""
    with without_side_effects(step):
        batch = step.draw(stage)[0]
        counts = step.update.objective.counts([batch])

        def call() -> None:
            step.update.forward_backward(batch, counts)
            step.update.model.zero_grad()

        return seconds_by_threads(call, numbers)


def seconds_by_threads(
    call: Callable[[], Any], numbers: Sequence[int]
) -> dict[int, float]:
    """The mean time of a call with each number of threads, which take turns."""

    def timed(n_threads: int) -> float:
        torch.set_num_threads(n_threads)
        began = time.perf_counter()
        call()
        return time.perf_counter() - began

    for n_threads in numbers:
        timed(n_threads)  # starts threads
    totals = dict.fromkeys(numbers, 0.0)
    n_turns = 0
    while n_turns < TURNS and sum(totals.values()) < ENOUGH_SECONDS:
        n_turns += 1
        for n_threads in numbers:
            totals[n_threads] += timed(n_threads)
    return {n_threads: total / n_turns for n_threads, total in totals.items()}
