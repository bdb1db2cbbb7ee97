"""What the training loop takes beside the step, while the clock runs: knobs, schedules, sums, the clock itself.

python -m benchmarks.loop_cost [--seconds 60]

The preset `quick` is trained beside a dashboard that answers. Counted are the share of the training time outside the
step, and the processor's time of the thread that delivers to the dashboard. Evaluating, showing and saving stop the
clock, and are not.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.dashboard_cost import server
from benchmarks.machine import machine, results_folder, results_name
from configs.command_line import PRESETS, read_config, resolve
from configs.experiment import configs_of
from data.corpus import load_corpus
from data.reference_losses import counting_losses, floor_losses
from runs.delivery import Delivery
from runs.files import write_atomically
from runs.run_folder import RunFolder
from runs.uploader import Uploader
from training import tracking
from training.resume import begin
from training.step import TrainingStep


class TimedStep:
    """A training step that counts the seconds within it; all else is asked of the step itself."""

    def __init__(self, step: TrainingStep):
        self.step = step
        self.seconds = 0.0

    def __call__(self, *arguments: Any) -> Any:
        began = time.perf_counter()
        sums = self.step(*arguments)
        self.seconds += time.perf_counter() - began
        return sums

    def __getattr__(self, name: str) -> Any:
        return getattr(self.step, name)


class TimedUploader(Uploader):
    """One that counts its thread's time on the processor."""

    seconds = 0.0

    def run(self) -> None:
        super().run()
        self.seconds = time.thread_time()


def main(arguments: list[str]) -> int:
    """Train, print the shares, write JSON; returns the exit code."""
    parser = argparse.ArgumentParser(description="What does the training loop take beside the step?")
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args(arguments)
    tracking.be_quiet()
    # On a CPU a step is done when it returns, so that the rest of the time is the loop's.
    keys = {"device": "cpu", "data.corpus": "play", "training.max_seconds": options.seconds}
    values = resolve(read_config(PRESETS / "quick.yaml"), keys)
    for losses in (counting_losses, floor_losses):  # else processes of their own would compute them beside the training
        losses(load_corpus("play"))
    configs = configs_of(values)
    trainer = configs.trainer
    step = trainer.training_step = TimedStep(trainer.training_step)  # type: ignore[assignment]
    print(f"about {options.seconds / 60 + 2:.0f} minutes", flush=True)
    with tempfile.TemporaryDirectory() as name, server(Path(name), "answering") as address:
        run = RunFolder.create(tracking.prepare("loop_cost", "", name))
        begin(run, values, configs.data.loaded, configs.data.vocabulary, "", [])
        run.save_status("in progress")
        callbacks = tracking.Tracking(run)
        callbacks.is_terminal = False  # labml's progress line, twice a second, is not part of it
        callbacks.uploader = uploader = TimedUploader(Delivery(run, address), print)
        uploader.start_and_report()
        if uploader.trouble:
            sys.exit(f"the dashboard does not take the run ({uploader.trouble}): this measures nothing")
        trainer.train(run, callbacks)
        run.save_status("completed")
        undelivered = uploader.end(tracking.SECONDS_TO_DELIVER)
        if undelivered:
            sys.exit(f"{undelivered}: this measures nothing")
    seconds = trainer.clock.seconds
    shares = {
        "outside the step, of the training time": 1 - step.seconds / seconds,
        "the uploader's thread, of all time": uploader.seconds / trainer.wall_seconds,
    }
    for what, share in shares.items():
        print(f"{what:40} {share:.2%}")
    content = {"machine": machine(), "seconds": seconds, "steps": trainer.step, "shares": shares}
    write_atomically(
        results_folder() / f"{results_name('loop_cost', parser, options)}.json",
        (json.dumps(content, indent=1) + "\n").encode(),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
