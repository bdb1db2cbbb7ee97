"""Has the objective compiled before the first step, or by another process while training begins."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from multiprocessing.process import BaseProcess
from typing import Any

from training.callbacks.callback import Callback
from training.compilation import Compiled, Report
from training.loop import Trainer
from training.schedule import Stage


class Compiler(Callback):
    """Has an objective compiled. If a `process` compiles the same code into the same folder,
    training begins uncompiled, and takes the code from the folder once the process has ended."""

    def __init__(
        self,
        compiled: Compiled,
        around: Callable[[Report], AbstractContextManager[Any]],
        process: BaseProcess | None = None,  # not started yet
    ):
        self.compiled = compiled
        self.around = around  # compiling happens inside of it
        self.process = process

    def begin(self, trainer: Trainer) -> None:
        if trainer.n_evaluations == trainer.schedule.evaluations:
            self.process = None
        elif self.process:
            self.process.start()
            trainer.report("training uncompiled while another process compiles")
        else:
            self.compile(trainer)

    def stepped(self, trainer: Trainer, stage: Stage) -> None:
        if self.process and not self.process.is_alive():
            self.process = None
            with trainer.clock.stopped():
                self.compile(trainer)

    def compile(self, trainer: Trainer) -> None:
        self.compiled.compile(
            trainer.training_step,
            trainer.schedule.stages,
            trainer.report,
            self.around(trainer.report),
        )
