"""Training time that the loop spends outside of the step: knobs, schedules, sums, and the clock itself.

python -m benchmarks.loop_cost [--seconds 60]

Trains the preset `quick` on the CPU next to a dashboard that answers. Measures the share of the training time outside
of the step, and the CPU time of the thread that delivers to the dashboard. Evaluation, samples and checkpoints stop the
clock and do not count.
"""

import sys
import tempfile
import time
from argparse import Namespace
from functools import partial
from pathlib import Path

from benchmarks.command import preset_values, run_benchmark
from benchmarks.dashboard_cost import new_run, server
from benchmarks.turns import Measures, compare
from configs.callbacks import acceleration, writing
from configs.experiment import configs_of
from data.corpus import load_corpus
from data.reference_losses import window_losses
from runs.delivery import Delivery
from runs.uploader import Uploader
from training import tracking
from training.objective import Sums
from training.schedule import Stage
from training.step import TrainingStep


class TimedStep(TrainingStep):
    """A training step that adds up the seconds of its calls."""

    seconds = 0.0

    def __call__(self, stage: Stage, progress: float = 0.0) -> Sums:
        began = time.perf_counter()
        sums = super().__call__(stage, progress)
        self.seconds += time.perf_counter() - began
        return sums


class TimedUploader(Uploader):
    """An uploader that measures the CPU time of its thread."""

    seconds = 0.0

    def run(self) -> None:
        super().run()
        self.seconds = time.thread_time()


def main(options: Namespace, path: Path) -> None:
    """Train, print a table, and write JSON."""
    print(f"about {options.seconds / 60 + 2:.0f} minutes", flush=True)
    compare(path, {"": {"quick": partial(train, options.seconds)}}, rounds=1)


def train(seconds: float) -> Measures:
    """The shares of a run of `quick`."""
    # On a CPU a step is finished when it returns, so the rest of the time is the loop's.
    values = preset_values("quick", {"device": "cpu", "data.corpus": "play", "training.max_seconds": seconds})
    window_losses(load_corpus("play"))  # or a process would compute them during the training
    configs = configs_of(values)
    trainer = configs.trainer
    step = trainer.training_step
    step.__class__ = TimedStep  # the same object, because others refer to it
    assert isinstance(step, TimedStep)
    with tempfile.TemporaryDirectory() as name, server(Path(name)) as (address, _):
        run = new_run(tracking.prepare("loop_cost", "", name), values, configs)
        callbacks = tracking.Tracking(run)
        callbacks.is_terminal = False  # leaves out labml's progress line, which is drawn twice per second
        callbacks.uploader = uploader = TimedUploader(Delivery(run, address), print)
        uploader.start_and_report()
        trainer.train(run, *writing(configs, run), *acceleration(configs), callbacks)
        undelivered = uploader.end(tracking.SECONDS_TO_DELIVER)
        if undelivered:
            sys.exit(f"{undelivered}: this measures nothing")
    return {
        "training time outside of the step, %": 100 * (1 - step.seconds / trainer.clock.seconds),
        "the uploader's thread, % of all time": 100 * uploader.seconds / trainer.wall_seconds,
    }


if __name__ == "__main__":
    run_benchmark(main, seconds=60.0)
