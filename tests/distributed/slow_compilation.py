"""Trains two steps after the last process has compiled for 5 s: `python tests/distributed/slow_compilation.py CONFIG`.

Prints the seconds of training.
"""

import sys
import time

import torch

from configs.command_line import parse
from configs.experiment import configs_of
from distributed import processes
from training import compilation
from training.callbacks import Silent


def main(config: str) -> None:
    torch.compile = lambda function, **_: function
    with processes.joined("cpu") as group:
        trainer = configs_of(parse(["--config", config]).values).trainer
        compilation._leave_out = lambda model: time.sleep(5.0 * (group.rank == group.n - 1))
        trainer.train(None, Silent())
        print(trainer.clock.seconds)


if __name__ == "__main__":
    main(*sys.argv[1:])
