"""Compiles the objective before the first step."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from training.callbacks.callback import Callback
from training.compilation import Compiled, Report


class Compiler(Callback):
    """Has an objective compiled before the first step."""

    def __init__(self, compiled: Compiled, around: Callable[[Report], AbstractContextManager[Any]]):
        self.compiled, self.around = compiled, around  # compiling happens inside of `around`

    def begin(self, trainer: Any) -> None:
        if trainer.n_evaluations < trainer.schedule.evaluations:
            step, stages, report = trainer.training_step, trainer.schedule.stages, trainer.report
            self.compiled.compile(step, stages, report, self.around(report))
