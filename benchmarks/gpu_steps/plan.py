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


STEPS = {
    "environment": Entry(correctness.environment, 10, 120),
    "compile": Entry(speed.compiling, 20, 240, is_alone=False),
    "tests": Entry(correctness.tests, 20, 180, is_alone=False),
    "agreement": Entry(correctness.agreement, 20, 180, is_alone=False),
    "loop": Entry(training.loop, 20, 180, is_alone=False),
    "resume": Entry(correctness.resumed, 20, 180, is_alone=False),
    "base": Entry(speed.base, 30, 180),
    "annotated": Entry(speed.annotated, 20, 120),
    "packing": Entry(speed.packing, 20, 120),
    "seed0": Entry(partial(training.losses, seed=0), 205, 270),
    "seed1": Entry(partial(training.losses, seed=1), 205, 270),
    "long": Entry(training.long, 240, inf),
}
