"""Train a masked language model: configs in, a trained run out.

python experiment.py [--preset NAME | --config FILE.yaml | --resume RUN | --init-from RUN] [--seeds N] [key=value ...]
"""

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
        return fail(error, code=1)
    except KeyboardInterrupt:  # during training it saves first
        return fail("interrupted before training; what was prepared of a large text is kept", code=130, in_all=True)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return fail(f"stopped: {what_to_lower(command.values)}", code=1)


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
    corpus = configs.data.loaded
    len(configs.data.training_ids)  # converts a large text, which may take hours
    command = group.from_first(replace(command, values=command.values | {"data.corpus": corpus.name}))
    trainer = built(configs, command, group)
    run = command.resumed or RunFolder.create(path)
    with run.locked():
        if command.resumed:
            resume(run, trainer, command.values, corpus)
        else:
            begin(run, command.values, corpus, configs.data.vocabulary, command.comment, command.overridden)
        return train(run, trainer, began)


def follow(command: Command, group: "Processes") -> int:
    """Train with the first process, silently: one of those that torchrun has started besides it."""
    from training import tracking
    from training.callbacks import Silent
    from training.resume import restore

    tracking.be_quiet()
    command = group.from_first(command)
    trainer = built(configs_of(command.values), command, group)
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
        copy_weights(configs.network, data.vocabulary, command.values, find_run(initial, command.logs))
    return configs.trainer


def train(run: RunFolder, trainer: Trainer, began: float) -> int:
    """Train until the budget is spent or a signal arrives; returns the exit code."""
    from configs.devices import gpu_uuid
    from training import tracking

    trainer, callbacks, interruption = configs.trainer, tracking.Tracking(run), Interruption()
    print(f"run {run.path}", flush=True)
    try:
        with (
            interruption.watched(),
            callbacks.training(lambda: not is_finished(trainer)),
            hardware.recorded(run, lambda: trainer.step, gpu_uuid(trainer.device)),
            processes.naming_losses(),
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


if __name__ == "__main__":
    run_main(main)
