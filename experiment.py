"""Train a masked language model: configs in, a trained run out.

python experiment.py [--preset NAME | --config FILE.yaml | --resume RUN | --init-from RUN] [--seeds
N] [key=value ...]
"""

import shlex
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from configs.branch import derived_seed
from configs.command_line.command import OWN_CODE, Command, parse, run_seeds
from configs.command_line.program import fail, run_main
from configs.command_line.scripts import exit_code
from configs.experiment import Configs, configs_of
from configs.references import keep, stopping_at_the_line, with_originals
from runs.errors import InputError
from runs.find import find_run
from runs.run_folder import RunFolder

if TYPE_CHECKING:
    from distributed.processes import Processes
    from training.loop import Trainer
    from training.tracking import Tracking


def main(arguments: list[str]) -> int:
    """Run one experiment; returns the exit code. Wrong keys are refused before PyTorch is imported."""
    began = time.monotonic()
    try:
        command = parse(arguments)
    except InputError as error:
        return fail(error, raised_by_all=True)
    if command.n_seeds > 1:
        return run_seeds(__file__, arguments, command)
    from distributed.meeting import restarted_run
    from distributed.parallel import together

    try:
        with together(command.values) as processes:
            # torchrun starts lost processes again
            restarted = None if command.resumed else restarted_run(command.logs)
            # a machine that does not see the folder of runs would begin a new one
            name = restarted.path.name if restarted else "none"
            processes.compare(lambda: {"run to resume": name})
            if restarted:
                command = parse(["--resume", str(restarted.path)])
            if processes.is_first:
                return lead(command, began, processes)
            return follow(command, processes)
    # the last: Ctrl-C before training
    except (InputError, RuntimeError, MemoryError, KeyboardInterrupt) as error:
        return exit_code(error, command.values)


def lead(command: Command, began: float, processes: "Processes") -> int:
    """Train, write the run's files and print messages. Only the first process does this."""
    from configs.callbacks import callbacks_of
    from data.corpus import PLAY
    from distributed.meeting import torchrun_id
    from training import tracking
    from training.resume import begin, resume

    print(command.source, flush=True)
    configs = configs_of(command.values)
    path = tracking.prepare(
        configs, command.comment, str(command.logs), command.resumed
    )
    corpus = configs.data.loaded
    # labml builds a part of the tree when it is first read; the ids of a large text may take hours
    _ = configs.data.training_ids
    if command.plan and command.plan["sha256"] != corpus.sha256:
        print(
            "warning: the text has changed since its plan: its losses may differ",
            flush=True,
        )
    # the corpus that `auto` has chosen; the other processes take the same one in `follow`
    processes.from_first(corpus.name == PLAY)
    command = replace(command, values=command.values | {"data.corpus": corpus.name})
    trainer = build_trainer(configs, command, processes)
    run = command.resumed or RunFolder(path)
    tracker = tracking.Tracking(run)
    trainer.callbacks = callbacks_of(configs, run, tracker)
    if not command.resumed:
        RunFolder.create(path)
    with run.locked():
        if command.resumed:
            values = with_originals(command.values, OWN_CODE, run)
            resume(run, trainer, values, configs.data.loaded)
        else:
            begin(
                run,
                command.values,
                configs.data,
                command.comment,
                command.overridden,
                torchrun_id(),
            )
            if command.plan:
                run.save_plan(command.plan)
        keep(run, command.values, OWN_CODE)
        return train(run, trainer, tracker, began)


def follow(command: Command, processes: "Processes") -> int:
    """Train with the first process, silently; returns the exit code."""
    from torch import manual_seed

    from configs.callbacks import callbacks_of
    from data.corpus import PLAY, TINY_SHAKESPEARE
    from distributed.interruption import Interruption
    from training import tracking
    from training.resume import restore

    tracking.be_quiet()
    is_play = processes.from_first(None)
    if command.values["data.corpus"] == "auto":
        corpus = (
            PLAY if is_play else TINY_SHAKESPEARE
        )  # no name from the store: it may be code
        command = replace(command, values=command.values | {"data.corpus": corpus})
    configs = configs_of(command.values)
    trainer = build_trainer(configs, command, processes)
    trainer.callbacks = callbacks_of(configs)
    # dropout differs between processes
    manual_seed(derived_seed(command.values["seed"], f"process {processes.rank}"))
    if command.resumed:
        restore(command.resumed, trainer)
    with Interruption(trainer).watched():
        trainer.train()
    return 0


def build_trainer(
    configs: Configs, command: Command, processes: "Processes"
) -> "Trainer":
    """Build the trainer with the weights of a new run. Those of a resumed run are loaded later."""
    from trained.initial_weights import copy_weights

    processes.connect(command.values["device"], configs.data)
    trainer = (
        configs.trainer
    )  # builds the model and all other parts: see configs/experiment.py
    if (initial := command.values["initial_weights"]) and not command.resumed:
        copy_weights(
            trainer.model,
            configs.data.vocabulary,
            command.values,
            find_run(initial, command.logs),
        )
    return trainer


def train(run: RunFolder, trainer: "Trainer", tracker: "Tracking", began: float) -> int:
    """Train until the budget is spent or a signal arrives; returns the exit code."""
    from configs.devices import gpu_uuid
    from distributed.interruption import Interruption
    from distributed.launch import python_command
    from distributed.processes import naming_lost_processes
    from runs import hardware

    def is_finished() -> bool:  # the last evaluation is at the end of the budget
        return trainer.n_evaluations == trainer.schedule.evaluations

    interruption = Interruption(trainer)
    earlier = trainer.wall_seconds  # of a resumed run
    print(f"run {run.path}", flush=True)
    try:
        with (
            interruption.watched(),  # Ctrl-C and other signals set trainer.must_stop
            tracker.training(lambda: not is_finished()),
            hardware.recorded(
                run, lambda: trainer.step, gpu_uuid(trainer.clock.device)
            ),
            naming_lost_processes(),
            stopping_at_the_line(),
        ):
            trainer.train()
    except BrokenPipeError:  # of the printed lines
        raise
    except OSError as error:
        return fail(
            f"stopped: cannot save the run ({error.strerror or error}): make room for {run.path}",
            code=1,
        )
    seconds = f"{trainer.clock.seconds:.0f} s of training, {earlier + time.monotonic() - began:.0f} s in all"
    if (
        interruption.signal is None or is_finished()
    ):  # a signal may arrive after the last step
        print(f"done ({seconds}): {run.path}", flush=True)
        return 0
    print(f"interrupted and saved ({seconds}); resume with", flush=True)
    print(
        f"{python_command()} experiment.py --resume {shlex.quote(str(run.path))}",
        flush=True,
    )
    return 128 + interruption.signal  # 130 for Ctrl-C, 143 for SIGTERM, for example


if __name__ == "__main__":
    run_main(main)
