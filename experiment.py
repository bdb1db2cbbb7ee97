"""Train a masked language model: configs in, a trained run out.

python experiment.py [--preset NAME | --config FILE.yaml | --resume RUN] [--seeds N] [key=value ...]
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from configs.command_line import Command, one_seed, parse
from configs.experiment import Configs, registered_configs
from configs.keys import ConfigError
from configs.memory import is_out_of_memory, what_to_lower
from configs.one_line import fail, run_main
from data.corpus import CorpusError
from runs.delivery import DeliveryError
from runs.run_folder import RunFolder, RunFolderError
from training import tracking
from training.checkpoint import CheckpointError
from training.health_checks import HealthCheckError
from training.resume import begin, resume


def main(arguments: list[str]) -> int:
    """Run one experiment; returns the exit code."""
    began = time.monotonic()
    try:
        command = parse(arguments)
        if command.n_seeds > 1:
            return run_seeds(arguments, command)
        print(command.source, flush=True)
        resumed = command.resumed.path if command.resumed else None
        path = tracking.prepare(command.values["name"], command.comment, str(command.logs), resumed)
        configs = registered_configs(command.values)
        trainer, corpus, vocabulary = configs.trainer, configs.data.loaded, configs.data.vocabulary
        run = command.resumed or RunFolder.create(path)
        with run.locked():
            values = command.values | {"data.corpus": corpus.name}
            if command.resumed:
                resume(run, trainer, values, corpus)
            else:
                begin(run, values, corpus, vocabulary, command.comment, command.overridden)
            return train(run, configs, began)
    except (ConfigError, CorpusError, RunFolderError, CheckpointError, DeliveryError) as error:
        return fail(error)


def train(run: RunFolder, configs: Configs, began: float) -> int:
    """Train until the budget is spent or a signal arrives; returns the exit code."""
    trainer, callbacks, interruption = configs.trainer, tracking.Tracking(run), Interruption()
    print(f"run {run.path}", flush=True)
    earlier = trainer.wall_seconds  # of a resumed run
    try:
        with interruption.watched(), callbacks.training(lambda: interruption.signal is not None):
            trainer.train(run, callbacks, lambda: interruption.signal is not None)
            if trainer.progress() >= 1:
                interruption.signal = None  # it arrived after the last step
    except HealthCheckError as error:
        return stop(str(error))
    except OSError as error:
        return stop(f"cannot save the run ({error.strerror or error}): make room for {run.path}")
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return stop(what_to_lower(run.config()))
    seconds = f"{trainer.clock.seconds:.0f} s of training, {earlier + time.monotonic() - began:.0f} s in all"
    if interruption.signal is None:
        print(f"done ({seconds}): {run.path}", flush=True)
    else:
        print(f"interrupted and saved ({seconds}); resume with", flush=True)
        print(f"python experiment.py --resume {run.path.name}", flush=True)
    return interruption.exit_code


def stop(reason: str) -> int:
    """Print why the training stopped, in one line; returns the exit code."""
    print(f"stopped: {reason}", file=sys.stderr, flush=True)
    return 1


def run_seeds(arguments: list[str], command: Command) -> int:
    """Train the runs of --seeds one after the other, each in its own process; stops at the first failure."""
    first = command.values["seed"]
    for seed in range(first, first + command.n_seeds):
        print(f"seed {seed}", flush=True)
        code = subprocess.run([sys.executable, __file__, *one_seed(arguments, seed)]).returncode
        if code:
            return code
    return 0


class Interruption:
    """Remembers the first Ctrl-C or SIGTERM, so that the run can save. A second one ends the process at once."""

    def __init__(self) -> None:
        self.signal: int | None = None

    @property
    def exit_code(self) -> int:
        """0, or 128 plus the number of the signal: 130 for Ctrl-C, 143 for SIGTERM."""
        return 0 if self.signal is None else 128 + self.signal

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Remembers signals inside the context."""
        before = {number: signal.signal(number, self._remember) for number in (signal.SIGINT, signal.SIGTERM)}
        yield
        for number, handler in before.items():
            signal.signal(number, handler)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        signal.signal(number, signal.SIG_DFL)
        os.write(2, b"\nstopping after this step; press Ctrl-C again to end at once without saving\n")


if __name__ == "__main__":
    run_main(main)
