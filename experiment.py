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
    """Run one experiment; returns the exit code. Wrong keys are refused before PyTorch is imported."""
    began = time.monotonic()
    try:
        command = parse(arguments)
    except InputError as error:
        return fail(error, raised_by_all=True)
    if command.n_seeds > 1:
        return run_seeds(__file__, arguments, command)
    from configs.session import follow, restarted
    from distributed.parallel import together

    try:
        with together(command.values) as processes:
            command = restarted(command, processes)
            if processes.is_first:
                return train(command, processes, began)
            return follow(command, processes, build_trainer)
    # the last: Ctrl-C before training
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
    path = prepare(configs, command.comment, str(command.logs), command.resumed)
    command = with_loaded_corpus(command, configs, processes)
    trainer = build_trainer(configs, command, processes)

    run = command.resumed or RunFolder(path)
    tracker = Tracking(run)
    trainer.callbacks = callbacks_of(configs, run, tracker)
    session = Session(run, trainer, tracker, began)
    with session.running(command, configs):
        trainer.train()
    return session.end()


def build_trainer(
    configs: Configs, command: Command, processes: "Processes"
) -> "Trainer":
    """Build the trainer with the weights of a new run. Those of a resumed run are loaded later."""
    from trained.initial_weights import copy_initial_weights

    processes.connect(command.values["device"], configs.data)
    # builds the model and all other parts: see configs/experiment.py
    trainer = configs.trainer
    if not command.resumed:
        copy_initial_weights(trainer.model, configs.data.vocabulary, command)
    return trainer


if __name__ == "__main__":
    run_main(main)
