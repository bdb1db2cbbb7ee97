"""Train a masked language model: configs in, a trained run out.

python experiment.py [--preset NAME | --config FILE.yaml | --resume RUN | --init-from RUN] [--seeds
N] [key=value ...]
"""

import time
from typing import TYPE_CHECKING

from configs.command_line.command import Command, parse, run_seeds
from configs.command_line.program import fail, run_main
from configs.command_line.scripts import exit_code
from configs.experiment import Configs, configs_of
from runs.errors import InputError
from runs.run_folder import RunFolder

if TYPE_CHECKING:
    from distributed.processes import Processes
    from training.loop import Trainer


def main(arguments: list[str]) -> int:
    """Run one experiment; returns the exit code. Wrong keys are refused before PyTorch is imported.

    torchrun starts several processes: the first one trains and writes the run (`train`), and the
    others compute their share of each step (`follow`).
    """
    began = time.monotonic()
    try:
        command = parse(arguments)
    except InputError as error:
        # all processes have the same command line: one prints the error
        return fail(error, raised_by_all=True)
    if command.n_seeds > 1:
        return run_seeds(__file__, arguments, command)
    from configs.session import follow, restarted
    from distributed.parallel import together

    try:
        with together(command.values) as processes:
            # resumes the run if torchrun has replaced lost processes; else the same command
            command = restarted(command, processes)
            if processes.is_first:
                return train(command, processes, began)
            return follow(command, processes, build_trainer)
    # KeyboardInterrupt: Ctrl-C before training; during training, the run is saved first
    except (InputError, RuntimeError, MemoryError, KeyboardInterrupt) as error:
        return exit_code(error, command.values)


def train(command: Command, processes: "Processes", began: float) -> int:
    """Train until the budget is spent or a signal arrives; returns the exit code. Only the first
    process does this: it writes the run's files and prints messages."""
    from configs.callbacks import callbacks_of
    from configs.session import Session, with_loaded_corpus
    from training.tracking import Tracking, prepare

    print(command.source, flush=True)
    configs = configs_of(command.values)
    # labml's experiment, which names the folder of the run
    path = prepare(configs, command.comment, str(command.logs), command.resumed)
    run = command.resumed or RunFolder(path)
    # from here on, data.corpus names the text that data.corpus=auto has found
    command = with_loaded_corpus(command, configs, processes)
    trainer = build_trainer(configs, command, processes)

    tracker = Tracking(run)
    # they write, show and steer the run
    trainer.callbacks = callbacks_of(configs, run, tracker)
    session = Session(run, trainer, tracker, began)
    # writes the files of a new run, or loads the state of a resumed one; then watches signals
    with session.running(command, configs):
        trainer.train()
    return session.end()


def build_trainer(
    configs: Configs, command: Command, processes: "Processes"
) -> "Trainer":
    """Build the model and the trainer of a new run. `Session.running` and `follow` load the state of
    a resumed one."""
    from trained.initial_weights import copy_initial_weights

    processes.connect(command.values["device"], configs.data)
    # reading an attribute builds it, with the model and all else it needs: configs/experiment.py
    trainer = configs.trainer
    if not command.resumed:
        # from the run that --init-from names, if it is given
        copy_initial_weights(trainer.model, configs.data, command)
    return trainer


if __name__ == "__main__":
    run_main(main)
