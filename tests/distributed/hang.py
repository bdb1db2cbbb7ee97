"""Trains until the main thread of the last process hangs at step 5: `python tests/distributed/hang.py CONFIG`."""

import sys
import threading

from configs.command_line import parse
from configs.experiment import configs_of
from distributed import processes
from training.callbacks import Silent


def main(config: str) -> None:
    with processes.joined("cpu") as group:
        trainer = configs_of(parse(["--config", config]).values).trainer

        def hang() -> bool:
            if trainer.step == 5 and group.rank == group.n - 1:
                threading.Event().wait()
            return False

        trainer.train(None, Silent(), hang)


if __name__ == "__main__":
    main(*sys.argv[1:])
