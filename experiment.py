"""Train a masked language model: configs in, a trained run out.

python experiment.py [--preset NAME | --config FILE.yaml] [key=value ...]
"""

import sys

from labml import experiment

from configs.command_line import fail, parse
from configs.experiment import Configs
from configs.keys import ConfigError
from data.corpus import CorpusError
from training import tracking
from training.run_folder import RunFolder, RunFolderError


def main(arguments: list[str]) -> int:
    """Run one experiment; returns the exit code."""
    try:
        command = parse(arguments)
        print(command.source, flush=True)
        path = tracking.prepare(command.values["name"], command.source, command.values["logs"])
        configs = Configs()
        experiment.configs(configs, dict(command.values))
        trainer = configs.trainer
        run = RunFolder.create(path)
    except (ConfigError, CorpusError, RunFolderError) as error:
        return fail(error)

    listener = tracking.Tracking()
    with tracking.started():
        run.save_config(command.values)
        print(f"run {run.path}", flush=True)
        with listener.training():
            trainer.train(run, listener)
    print(f"done: {run.path}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
