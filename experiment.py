"""Train a masked language model: configs in, a trained run out.

python experiment.py [--preset NAME | --config FILE.yaml | --resume RUN] [--seeds N] [key=value ...]
"""

import subprocess
import sys
import time

import torch
from labml import experiment

from configs.command_line import Command, one_seed, parse
from configs.experiment import Configs
from configs.keys import ConfigError
from configs.memory import is_out_of_memory, what_to_lower
from configs.one_line import fail, run_main
from data.corpus import CorpusError
from runs.delivery import DeliveryError
from runs.run_folder import RunFolder, RunFolderError
from training import tracking
from training.checkpoint import CheckpointError
from training.health_checks import HealthCheckError
from training.interruption import Interruption
from training.resume import begin, go_on


def main(arguments: list[str]) -> int:
    """Run one experiment; returns the exit code."""
    began = time.monotonic()
    try:
        command = parse(arguments)
        if command.n_seeds > 1:
            return one_run_a_seed(arguments, command)
        print(command.source, flush=True)
        resumed = command.resumed.path if command.resumed else None
        path = tracking.prepare(command.values["name"], command.comment, command.values["logs"], resumed)
        configs = Configs()
        experiment.configs(configs, dict(command.values))
        trainer, corpus, vocabulary = configs.trainer, configs.data.loaded, configs.data.vocabulary
        run = command.resumed or RunFolder.create(path)
        with run.locked():
            values = command.values | {"data.corpus": corpus.name}
            if command.resumed:
                go_on(run, trainer, values, corpus)
            else:
                begin(run, values, corpus, vocabulary, command.comment, command.overridden)
            return train(run, configs, began)
    except (ConfigError, CorpusError, RunFolderError, CheckpointError, DeliveryError) as error:
        return fail(error)


def train(run: RunFolder, configs: Configs, began: float) -> int:
    """Train until the budget is spent or someone interrupts; returns the exit code."""
    trainer, callbacks, interruption = configs.trainer, tracking.Tracking(run), Interruption()
    print(f"run {run.path}", flush=True)
    earlier = trainer.wall_seconds  # of a run that goes on
    try:
        with interruption.watched(), callbacks.training(interruption):
            trainer.train(run, callbacks, lambda: interruption.signal is not None)
            if trainer.progress() >= 1:
                interruption.signal = None  # it came when all was done
    except HealthCheckError as error:
        print(f"stopped: {error}", file=sys.stderr, flush=True)
        return 1
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        print(f"stopped: {what_to_lower(run.config())}", file=sys.stderr, flush=True)
        return 1
    seconds = f"{trainer.clock.seconds:.0f} s of training, {earlier + time.monotonic() - began:.0f} s in all"
    if interruption.signal is None:
        print(f"done ({seconds}): {run.path}", flush=True)
    else:
        print(f"interrupted, and saved ({seconds}); go on with", flush=True)
        print(f"python experiment.py --resume {run.path.name}", flush=True)
    return interruption.exit_code


def one_run_a_seed(arguments: list[str], command: Command) -> int:
    """Train the runs of --seeds one after the other, each in a process of its own; stops at the first failure."""
    first = command.values["seed"]
    for seed in range(first, first + command.n_seeds):
        print(f"seed {seed}", flush=True)
        code = subprocess.run([sys.executable, __file__, *one_seed(arguments, seed)]).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    run_main(main)
