"""Train a masked language model: configs in, a trained run out.

python experiment.py [--preset NAME | --config FILE.yaml] [--seeds N] [key=value ...]
"""

import subprocess
import sys
import time

from labml import experiment

from configs.command_line import Command, fail, one_seed, parse
from configs.experiment import Configs
from configs.keys import ConfigError
from data.corpus import CorpusError
from training import tracking
from training.alarms import AlarmError
from training.interruption import Interruption
from training.run_folder import RunFolder, RunFolderError


def main(arguments: list[str]) -> int:
    """Run one experiment; returns the exit code."""
    began = time.monotonic()
    try:
        command = parse(arguments)
        if command.n_seeds > 1:
            return one_run_a_seed(arguments, command)
        print(command.source, flush=True)
        path = tracking.prepare(command.values["name"], command.comment, command.values["logs"])
        configs = Configs()
        experiment.configs(configs, dict(command.values))
        trainer = configs.trainer
        run = RunFolder.create(path)
    except (ConfigError, CorpusError, RunFolderError) as error:
        return fail(error)

    listener, interruption = tracking.Tracking(run), Interruption()
    try:
        with interruption.watched():
            corpus = configs.data.loaded
            run.save_about(command.values["name"], command.comment, command.overridden)
            run.save_config(command.values | {"data.corpus": corpus.name})
            run.save_corpus(corpus.name, corpus.sha256)
            configs.data.vocabulary.save(run.vocabulary_path)
            print(f"run {run.path}", flush=True)
            with listener.training(interruption):
                trainer.train(run, listener, lambda: interruption.signal is not None)
    except AlarmError as error:
        print(f"stopped: {error}", file=sys.stderr, flush=True)
        return 1
    seconds = f"{trainer.clock.seconds:.0f} s of training, {time.monotonic() - began:.0f} s in all"
    print(f"{'interrupted, and saved' if interruption.signal else 'done'} ({seconds}): {run.path}", flush=True)
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
    sys.exit(main(sys.argv[1:]))
