"""What surrounds the training of `experiment.py`: the text that all processes share, the files of
the run, signals, and messages; and the processes other than the first."""

import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from configs import hugging_face
from configs.branch import derived_seed
from configs.callbacks import callbacks_of
from configs.command_line.command import OWN_CODE, Command, parse
from configs.devices import gpu_uuid
from configs.experiment import Configs, configs_of
from configs.references import keep, stopping_at_the_line, with_originals
from data.corpus import PLAY, TINY_SHAKESPEARE
from distributed.interruption import Interruption
from distributed.launch import python_command
from distributed.meeting import restarted_run, torchrun_id
from distributed.processes import Processes, naming_lost_processes
from runs import hardware
from runs.errors import StoppedError
from runs.run_folder import RunFolder
from training.loop import Trainer
from training.resume import begin, restore, resume
from training.tracking import Tracking, be_quiet

Build = Callable[[Configs, Command, Processes], Trainer]


def restarted(command: Command, processes: Processes) -> Command:
    """The command that resumes the run, if torchrun has started lost processes again."""
    run = None if command.resumed else restarted_run(command.logs)
    # a machine that does not see the folder of runs would begin a new one
    processes.compare(lambda: {"run to resume": run.path.name if run else "none"})
    return parse(["--resume", str(run.path)]) if run else command


def with_loaded_corpus(
    command: Command, configs: Configs, processes: Processes
) -> Command:
    """The command with the corpus that `auto` has chosen, which the other processes take too."""
    corpus = configs.data.loaded
    # labml builds a part of the tree when it is first read; the ids of a large text may take hours
    _ = configs.data.training_ids
    if command.plan and command.plan["sha256"] != corpus.sha256:
        print(
            "warning: the text has changed since its plan: its losses may differ",
            flush=True,
        )
    processes.from_first(corpus.name == PLAY)
    return replace(command, values=command.values | {"data.corpus": corpus.name})


def follow(command: Command, processes: Processes, build_trainer: Build) -> int:
    """Train with the first process, silently; returns the exit code."""
    be_quiet()
    is_play = processes.from_first(None)
    if command.values["data.corpus"] == "auto":
        # no name from the store: it may be code
        corpus = PLAY if is_play else TINY_SHAKESPEARE
        command = replace(command, values=command.values | {"data.corpus": corpus})
    configs = configs_of(command.values)
    trainer = build_trainer(configs, command, processes)
    trainer.callbacks = callbacks_of(configs)
    # dropout differs between processes
    seed = derived_seed(command.values["seed"], f"process {processes.rank}")
    torch.manual_seed(seed)
    if command.resumed:
        restore(command.resumed, trainer)
    with Interruption(trainer).watched():
        trainer.train()
    return 0


class Session:
    """The first process's training of a run, from its first file to its last message."""

    def __init__(
        self,
        run: RunFolder,
        trainer: Trainer,
        tracker: Tracking,
        began: float,
    ):
        """`began` is the `time.monotonic()` at which the program has begun."""
        self.run = run
        self.trainer = trainer
        self.tracker = tracker
        self.began = began
        self.interruption = Interruption(trainer)

    @contextmanager
    def running(self, command: Command, configs: Configs) -> Iterator[None]:
        """Write the files of a new run, or load the state of a resumed one; then watch signals and
        record the hardware. Raises StoppedError if the run cannot be saved."""
        if not command.resumed:
            RunFolder.create(self.run.path)
        with self.run.locked():
            self._prepare(command, configs)
            self.began -= self.trainer.wall_seconds  # of a resumed run
            print(f"run {self.run.path}", flush=True)
            device = self.trainer.clock.device
            try:
                with (
                    # Ctrl-C and other signals set trainer.must_stop
                    self.interruption.watched(),
                    self.tracker.training(lambda: not self.is_finished()),
                    hardware.recorded(
                        self.run, lambda: self.trainer.step, gpu_uuid(device)
                    ),
                    naming_lost_processes(),
                    stopping_at_the_line(),
                ):
                    yield
            except BrokenPipeError:  # of the printed lines
                raise
            except OSError as error:
                raise StoppedError(
                    f"cannot save the run ({error.strerror or error}): make room for {self.run.path}"
                ) from error

    def _prepare(self, command: Command, configs: Any) -> None:
        data = configs.data
        if command.resumed:
            values = with_originals(command.values, OWN_CODE, self.run)
            values |= {
                key: self.run.config()[key] for key in hugging_face.kept_keys(self.run)
            }
            resume(self.run, self.trainer, values, data.loaded)
        else:
            begin(
                self.run,
                command.values,
                data,
                command.comment,
                command.overridden,
                torchrun_id(),
            )
            if command.plan:
                self.run.save_plan(command.plan)
        keep(self.run, command.values, OWN_CODE)
        hugging_face.keep(self.run, command.values, configs.model)

    def is_finished(self) -> bool:
        """Whether the last evaluation, at the end of the budget, is done."""
        return self.trainer.n_evaluations == self.trainer.schedule.evaluations

    def end(self) -> int:
        """Print how the training has ended; returns the exit code."""
        total = time.monotonic() - self.began
        seconds = (
            f"{self.trainer.clock.seconds:.0f} s of training, {total:.0f} s in all"
        )
        # a signal may arrive after the last step
        if self.interruption.signal is None or self.is_finished():
            print(f"done ({seconds}): {self.run.path}", flush=True)
            return 0
        print(f"interrupted and saved ({seconds}); resume with", flush=True)
        path = shlex.quote(str(self.run.path))
        print(f"{python_command()} experiment.py --resume {path}", flush=True)
        return 128 + self.interruption.signal  # 130 for Ctrl-C, 143 for SIGTERM
