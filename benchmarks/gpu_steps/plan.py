"""The steps in the order in which they are taken: those that are worth most first."""

from collections.abc import Callable
from functools import partial
from math import inf
from typing import NamedTuple

from benchmarks.gpu_steps import correctness, speed, training
from benchmarks.gpu_steps.step import Step


class Entry(NamedTuple):
    """A step in the plan."""

    take: Callable[[Step], None]
    least: float  # seconds; with fewer left, the step is skipped
    most: float  # seconds, after which the step is ended
    is_alone: bool = True  # whether it measures time, so that nothing may run beside it


def beside(take: Callable[[Step], None], most: float) -> Entry:
    return Entry(
        take,
        least=20,
        most=most,
        is_alone=False,
    )


STEPS = {
    "environment": Entry(correctness.environment, 10, 120),
    "compile": beside(speed.compiling, 240),
    "tests": beside(correctness.tests, 180),
    "agreement": beside(correctness.agreement, 180),
    "loop": beside(training.loop, 180),
    "resume": beside(correctness.resumed, 180),
    "base": Entry(speed.base, 30, 180),
    "annotated": Entry(speed.annotated, 20, 120),
    "packing": Entry(speed.packing, 20, 120),
    "seed0": Entry(partial(training.losses, seed=0), 205, 270),
    "seed1": Entry(partial(training.losses, seed=1), 205, 270),
    "long": Entry(training.long, 240, inf),
}
