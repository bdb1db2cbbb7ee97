"""Runs experiment.py; its last process raises an error: `python tests/distributed/failing.py ERROR ARGUMENTS`."""

import os
import sys

import experiment
from configs.one_line import run_main
from training.checkpoint import CheckpointError

ERRORS = {"checkpoint": CheckpointError("no checkpoint"), "memory": MemoryError()}


def fail(*arguments: object) -> None:
    raise ERRORS[sys.argv[1]]


if __name__ == "__main__":
    if os.environ["RANK"] == "1":
        experiment.built_trainer = fail
    run_main(lambda arguments: experiment.main(arguments[1:]))
