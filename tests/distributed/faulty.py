"""Runs experiment.py with a fault in the last process: `python tests/distributed/faulty.py FAULT
ARGUMENTS`.

A lost process is given up after seconds instead of most of a minute.
"""

import errno
import os
import resource
import sys
import threading
import time
from datetime import timedelta

import torch

import experiment
from configs.command_line.program import run_main
from data.corpus import ENVIRONMENT_VARIABLE, Corpus
from distributed import meeting, processes, saving
from runs.files import flush
from training import compilation
from training.checkpoint import CheckpointError
from training.loop import Trainer
from training.step import TrainingStep


def no_checkpoint(*arguments):
    raise CheckpointError("no checkpoint")


def no_memory(*arguments):
    raise MemoryError


def reversed_text(name, text, *automaton):
    return from_text(name, text[::-1])


def hang(*arguments):
    threading.Event().wait()


def slow(function):
    """A function that takes longer than an exchange of tensors may."""

    def slowly(*arguments, **keywords):
        time.sleep(1.2 * processes.TIMEOUT.total_seconds())
        return function(*arguments, **keywords)

    return slowly


def once(path):
    """Fail as a full disk does, then no more."""
    saving.flush = flush
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


from_text = Corpus.from_text
FAULTS = {
    "full disk": lambda: resource.setrlimit(
        resource.RLIMIT_FSIZE, (1_000, resource.RLIM_INFINITY)
    ),
    "none": lambda: None,
    "restart": lambda: None,  # with the timeouts of a real run
    "checkpoint": lambda: setattr(experiment, "build_trainer", no_checkpoint),
    "memory": lambda: setattr(experiment, "build_trainer", no_memory),
    "key": lambda: sys.argv.append("seed=5"),
    "text": lambda: setattr(Corpus, "from_text", staticmethod(reversed_text)),
    "no text": lambda: os.environ.update({ENVIRONMENT_VARIABLE: "nowhere.txt"}),
    "full disk once": lambda: setattr(saving, "flush", once),
    "hang": lambda: setattr(TrainingStep, "__call__", hang),
    "slow compiler": lambda: setattr(
        compilation, "_leave_out", slow(lambda model: None)
    ),
}

if __name__ == "__main__":
    fault = sys.argv.pop(1)
    if fault != "full disk":
        meeting.SECONDS_TO_END = 3.0
    if fault not in ("full disk", "restart"):
        processes.TIMEOUT, meeting.SECONDS_PER_BEAT = timedelta(seconds=5), 0.2
    if fault != "full disk" or os.environ["RANK"] != "1":
        torch.compile = lambda function, **_: function
    if os.environ["RANK"] == "1":
        FAULTS[fault]()
    elif fault == "slow compiler":
        Trainer.save = slow(Trainer.save)
    run_main(experiment.main)
