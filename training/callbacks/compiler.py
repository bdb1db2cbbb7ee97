"""Compiles the objective before the first step."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from training.callbacks.callback import Callback
from training.compilation import Compiled, Report
from training.loop import Trainer


class Compiler(Callback):
    """Has an objective compiled before the first step."""

    def __init__(
        self,
        compiled: Compiled,
        around: Callable[[Report], AbstractContextManager[Any]],
    ):
        self.compiled = compiled
        self.around = around  # compiling happens inside of it

    def begin(self, trainer: Trainer) -> None:
        if trainer.n_evaluations < trainer.schedule.evaluations:
            self.compiled.compile(
                trainer.training_step,
                trainer.schedule.stages,
                trainer.report,
                self.around(trainer.report),
            )
