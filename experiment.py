"""Train a masked language model: configs in, a trained run out.

python experiment.py [--preset NAME | --config FILE.yaml | --resume RUN | --init-from RUN] [--seeds N] [key=value ...]
"""

import subprocess
import sys
import time
from typing import TYPE_CHECKING

from configs.command_line import Command, parse
from configs.experiment import Configs, configs_of, registered_configs
from configs.keys import ConfigError
from configs.memory import is_out_of_memory, what_to_lower
from configs.one_line import fail, run_main
from data.sources import CorpusError
from distributed import launch
from distributed.interruption import Interruption
from runs import hardware
from runs.delivery import DeliveryError
from runs.find import find_run
from runs.run_folder import RunFolder, RunFolderError

# Importing PyTorch takes seconds, so the functions below import what uses it: a wrong key is refused before.
if TYPE_CHECKING:
    from distributed.processes import Processes
    from training.loop import Trainer


def main(arguments: list[str]) -> int:
    """Run one experiment; returns the exit code."""
    began = time.monotonic()
    try:
        command = parse(arguments)
    except (ConfigError, RunFolderError) as error:  # the processes of a machine have the same one
        return fail(error) if launch.local_rank() == 0 else 2
    if command.n_seeds > 1:
        return run_seeds(arguments, command)
    from distributed.processes import LostProcessError, joined
    from training.checkpoint import CheckpointError
    from training.health_checks import HealthCheckError

    rank = launch.rank()
    name = f"process {rank}: " if rank else ""
    try:
        with joined(command.values["device"]) as group:
            return lead(command, began, group) if group.is_first else follow(command, group)
    except (ConfigError, CorpusError, RunFolderError, CheckpointError, DeliveryError) as error:
        return fail(f"{name}{error}")
    except HealthCheckError as error:  # all processes have the same one
        return 1 if rank else fail(f"stopped: {error}", code=1)
    except KeyboardInterrupt:  # during training it saves first
        return fail("interrupted before training; what was prepared of a large text is kept", code=130)
    except LostProcessError as error:
        return fail(f"{name}{error}", code=1)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return fail(f"{name}stopped: {what_to_lower(command.values)}", code=1)


def lead(command: Command, began: float, group: "Processes") -> int:
    """Train, write the run's files and talk to the user: the first process, or the only one."""
    from training import tracking
    from training.resume import begin, restarted_run, resume

    restarted = None if command.resumed else restarted_run(command.logs)
    if restarted:
        command = parse(["--resume", str(restarted.path)])
    print(command.source, flush=True)
    path = tracking.prepare(command.values["name"], command.comment, str(command.logs), command.resumed)
    configs = registered_configs(command.values)
    with group.watchdog.busy():
        corpus = configs.data.loaded
        len(configs.data.training_ids)  # computing them converts a large text, which may take hours
    group.from_first(command)  # the others begin when the text is here
    trainer = built_trainer(configs, command)
    run = command.resumed or RunFolder.create(path)
    with run.locked():
        values = command.values | {"data.corpus": corpus.name}
        if command.resumed:
            resume(run, trainer, values, corpus)
        else:
            begin(run, values, corpus, configs.data.vocabulary, command.comment, command.overridden)
        return train(run, configs, began)


def follow(command: Command, group: "Processes") -> int:
    """Train with the first process, silently: one of those that torchrun has started besides it."""
    from training import tracking
    from training.callbacks import Silent
    from training.resume import restore

    tracking.be_quiet()
    command = group.from_first(command)
    configs = configs_of(command.values)
    trainer = built_trainer(configs, command)
    if command.resumed:
        restore(command.resumed, trainer)
    with Interruption().watched():
        trainer.train(None, Silent())
    return 0


def built_trainer(configs: Configs, command: Command) -> "Trainer":
    """The trainer, whose model has the weights that the run begins with."""
    from trained.initial_weights import copy_weights

    trainer, initial = configs.trainer, command.values["initial_weights"]
    if initial and not command.resumed:
        copy_weights(trainer.model, configs.data.vocabulary, command.values, find_run(initial, command.logs))
    return trainer


def train(run: RunFolder, configs: Configs, began: float) -> int:
    """Train until the budget is spent or a signal arrives; returns the exit code."""
    from configs.devices import gpu_uuid
    from training import tracking

    trainer, callbacks, interruption = configs.trainer, tracking.Tracking(run), Interruption()
    print(f"run {run.path}", flush=True)
    earlier = trainer.wall_seconds  # of a resumed run
    try:
        with (
            interruption.watched(),
            callbacks.training(lambda: not is_finished(trainer)),
            hardware.recorded(run, lambda: trainer.step, gpu_uuid(trainer.device)),
        ):
            trainer.train(run, callbacks, lambda: interruption.signal is not None)
    except BrokenPipeError:
        raise  # the reader of the output has gone
    except OSError as error:
        return fail(f"stopped: cannot save the run ({error.strerror or error}): make room for {run.path}", code=1)
    seconds = f"{trainer.clock.seconds:.0f} s of training, {earlier + time.monotonic() - began:.0f} s in all"
    if interruption.signal is None or is_finished(trainer):  # a signal may arrive after the last step
        print(f"done ({seconds}): {run.path}", flush=True)
        return 0
    print(f"interrupted and saved ({seconds}); resume with", flush=True)
    print(f"{launch.command()} experiment.py --resume {run.path.name}", flush=True)
    return 128 + interruption.signal  # 130 for Ctrl-C, 143 for SIGTERM


def is_finished(trainer: "Trainer") -> bool:
    """Whether the training has had its last evaluation, which is at the end of its budget."""
    return trainer.n_evaluations == trainer.schedule.evaluations


def run_seeds(arguments: list[str], command: Command) -> int:
    """Train the runs of --seeds one after the other, each in its own process; stops at the first failure."""
    first = command.values["seed"]
    for seed in range(first, first + command.n_seeds):
        print(f"seed {seed}", flush=True)
        one_run = [*arguments, "--seeds=1", f"seed={seed}"]  # the last value of an option or a key counts
        if any(word.startswith("--init-from") for word in arguments):  # `last` is another run after the first seed
            one_run.append(f"--init-from={command.values['initial_weights']}")
        code = subprocess.run([sys.executable, __file__, *one_run]).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    run_main(main)
