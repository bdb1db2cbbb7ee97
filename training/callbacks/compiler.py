"""Has the objective compiled before the first step, or by another process while training begins."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from multiprocessing.process import BaseProcess
from typing import Any

from training.callbacks.callback import Callback
from training.callbacks.threads import ThreadChoice
from training.compilation import Compiled, Report
from training.loop import Trainer
from training.schedule import Stage


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
            self.compile(trainer)

    def compile(self, trainer: Trainer) -> None:
        self.compiled.compile(
            trainer.training_step,
            trainer.schedule.stages,
            trainer.report,
            self.around(trainer.report),
        )


class CompilerMeanwhile(Compiler):
    """Training begins uncompiled. A process that has not started yet compiles the same code into the
    same folder; once it has ended, the objective takes its code from there."""

    def __init__(
        self,
        compiled: Compiled,
        around: Callable[[Report], AbstractContextManager[Any]],
        process: BaseProcess,
        threads: ThreadChoice,
    ):
        super().__init__(compiled, around)
        self.process: BaseProcess | None = process
        self.threads = threads  # to choose again, because the process needs a core

    def begin(self, trainer: Trainer) -> None:
        trainer.report("training uncompiled while another process compiles the step")

    def stepped(self, trainer: Trainer, stage: Stage) -> None:
        """Start the process after the first step: what is measured before it has all cores."""
        if self.process is None:
            return
        if self.process.pid is None:
            with trainer.clock.stopped():
                self.process.start()
                self.threads.choose(trainer)
        elif not self.process.is_alive():
            self.process = None
            with trainer.clock.stopped():
                self.compile(trainer)
                self.threads.choose(trainer)
