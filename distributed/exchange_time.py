"""The share of a step's time in which processes exchange tensors."""

import os
from collections.abc import Iterable
from typing import Any

from torch.profiler import ProfilerActivity, profile

from training.callbacks.callback import Callback, Row
from training.evaluation import Evaluation
from training.loop import Trainer
from training.schedule import Stage

MEASURED_STEP = 4  # after an evaluation; earlier ones may allocate memory
NAMES = ("gloo:", "nccl")  # of the profiler's events


class ExchangeTime(Callback):
    """Adds the share of a step's time in which this process exchanges tensors, including waiting
    for other processes and overlap with computing. PyTorch's profiler measures it, in one step per
    row."""

    def __init__(self) -> None:
        self.n_steps = 0  # since the last row
        self.profiler: Any = None

    def begin(self, trainer: Trainer) -> None:
        # else the profiler prints a line when it starts
        os.environ.setdefault("KINETO_LOG_LEVEL", "6")
        # the first one takes a second, for which the clock must not run
        with profile(acc_events=True):
            pass

    def adjust(
        self, trainer: Trainer, stage: Stage, lr_share: float
    ) -> tuple[Stage, float]:
        self.n_steps += 1
        if self.n_steps == MEASURED_STEP:
            activities = [ProfilerActivity.CPU]
            if trainer.clock.device.type == "cuda":
                activities.append(ProfilerActivity.CUDA)
            # PyTorch 2.11 warns of events that it drops, unless they accumulate
            self.profiler = profile(activities=activities, acc_events=True)
            self.profiler.start()
        return stage, lr_share

    def stepped(self, trainer: Trainer, stage: Stage) -> None:
        if self.n_steps == MEASURED_STEP:
            self.profiler.stop()

    def measured(self, trainer: Trainer, row: Row, evaluation: Evaluation) -> None:
        if self.profiler:
            row["exchanging"] = exchanging(self.profiler.events())
        self.n_steps = 0
        self.profiler = None


def exchanging(events: Iterable[Any]) -> float:
    """The share of the time of a profiler's events in which tensors are exchanged."""
    spans = []
    exchanges = []
    for event in events:
        span = (event.time_range.start, event.time_range.end)
        spans.append(span)
        if any(name in event.name for name in NAMES):
            exchanges.append(span)
    began = min(begin for begin, _ in spans)
    ended = max(end for _, end in spans)
    return covered(exchanges) / (ended - began)


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """The time that is in at least one of the spans, each a begin and an end."""
    total = 0.0
    until = float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total
