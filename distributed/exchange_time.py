"""The share of a step's time in which processes exchange tensors."""

import os
from collections.abc import Iterable
from typing import Any

from torch.profiler import ProfilerActivity, profile

from training.callbacks.callback import Callback

MEASURED_STEP = 4  # after an evaluation; earlier ones may allocate memory
NAMES = ("gloo:", "nccl")  # of the profiler's events


class ExchangeTime(Callback):
    """Adds the share of a step's time in which this process exchanges tensors, including waiting
    for other processes and overlap with computing. PyTorch's profiler measures it, in one step per
    row."""

    def __init__(self) -> None:
        self.n_steps = 0  # since the last row
        self.profiler: Any = None

    def begin(self, trainer: Any) -> None:
        # else the profiler prints a line when it starts
        os.environ.setdefault("KINETO_LOG_LEVEL", "6")
        with profile():  # the first one takes a second, for which the clock must not run
            pass

    def adjust(self, trainer: Any, stage: Any, factor: float) -> tuple[Any, float]:
        self.n_steps += 1
        if self.n_steps == MEASURED_STEP:
            activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
            self.profiler = profile(
                activities=activities[: 2 if trainer.clock.device.type == "cuda" else 1]
            )
            self.profiler.start()
        return stage, factor

    def stepped(self, trainer: Any, stage: Any) -> None:
        if self.n_steps == MEASURED_STEP:
            self.profiler.stop()

    def measured(self, trainer: Any, row: dict[str, Any], evaluation: Any) -> None:
        if self.profiler:
            spans = [
                (each.name, each.time_range.start, each.time_range.end)
                for each in self.profiler.events()
            ]
            exchanges = [span for name, *span in spans if any(part in name for part in NAMES)]
            begins, ends = zip(*(span for _, *span in spans), strict=True)
            row["exchanging"] = covered(exchanges) / (max(ends) - min(begins))
        self.n_steps, self.profiler = 0, None


def covered(spans: Iterable[list[float]]) -> float:
    """The time that is in at least one of the spans, each a begin and an end."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total
