"""Training speed next to a dashboard: one that answers, and absent, frozen and failing ones.

python -m benchmarks.dashboard_cost [--repeats 12]

The same training step runs in turns of twelve seconds: without a dashboard, with one that answers, and with one that is
absent, frozen, or answers with errors. During a turn a metrics row and a log line are written every second. With a
dashboard, an uploader delivers them, and the use of the hardware is recorded every ten seconds.
"""

import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

from benchmarks.command import device_preset, preset_values, run_benchmark
from benchmarks.turns import Measures, compare, warmed_up_step
from configs.devices import gpu_uuid
from configs.experiment import Configs, configs_of
from runs import hardware
from runs.delivery import SECONDS_TO_ANSWER, Delivery
from runs.files import ROOT
from runs.run_folder import RunFolder
from runs.uploader import Uploader
from training.resume import begin
from training.schedule import Stage
from training.step import TrainingStep

SECONDS_PER_TURN = 12.0
BASE = "none"
ROW = {"loss.valid": 1.5, "loss.train": 1.6, "accuracy.valid": 0.5, "learning_rate": 1e-3, "seq_len": 64}


def main(options: Namespace, path: Path) -> None:
    """Measure, print a table, and write JSON."""
    values = preset_values(device_preset(), {"data.corpus": "play"})
    configs = configs_of(values)
    step, stage = warmed_up_step(configs)
    with tempfile.TemporaryDirectory() as name, ExitStack() as servers:
        folder = Path(name)
        addresses: dict[str, str | None] = {BASE: None, "absent": "http://127.0.0.1:9"}
        for state in ("answering", "frozen", "answering errors"):
            addresses[state], _ = servers.enter_context(server(folder / state.replace(" ", "_"), state))

        def turn(state: str) -> Measures:
            run, address = new_run(folder / "logs" / uuid.uuid4().hex, values, configs), addresses[state]
            if not address:
                return speed(step, stage, run)
            uploader = Uploader(Delivery(run, address), lambda line: None)
            uploader.start_and_report()
            with hardware.recorded(run, lambda: 0, gpu_uuid(step.update.device)):
                measures = speed(step, stage, run, uploader.wake)
            # Waits for a frozen dashboard too, so that no uploader disturbs the next turn.
            undelivered = uploader.end(SECONDS_TO_ANSWER + 1)
            if undelivered and state == "answering":
                sys.exit(f"{undelivered}: this measures nothing")
            return measures

        compare(path, {"": {state: partial(turn, state) for state in addresses}}, options.repeats, base=BASE, warmup=1)


def new_run(path: Path, values: dict[str, Any], configs: Configs) -> RunFolder:
    """The folder of a run that is in progress."""
    run = RunFolder.create(path)
    begin(run, values, configs.data.loaded, configs.data.vocabulary, "", [])
    run.save_status("in progress")
    return run


@contextmanager
def server(folder: Path, state: str = "answering") -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address and the process of a real dashboard that is answering, frozen, or answering errors."""
    database = folder / "dashboard.sqlite3"
    command = [sys.executable, "dashboard.py", "--port", "0", "--db", str(database)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split()[1].removesuffix("/runs")
        if state == "answering errors":
            with sqlite3.connect(database, timeout=30) as connection:
                connection.execute("DROP TABLE entries")
        if state == "frozen":
            process.send_signal(signal.SIGSTOP)
        yield address, process
    finally:
        process.kill()
        process.wait()


def speed(step: TrainingStep, stage: Stage, run: RunFolder, wake: Event | None = None) -> Measures:
    """The speed during one turn. Sets `wake`, an uploader's, after every row."""
    began = last_row = time.perf_counter()
    steps = 0
    while time.perf_counter() - began < SECONDS_PER_TURN:
        step(stage)["loss"].item()
        steps += 1
        if time.perf_counter() - last_row > 1:
            last_row = time.perf_counter()
            run.append_metrics({"step": steps, "corpus": "play", **ROW})
            run.append_log("a line for people")
            if wake:
                wake.set()
    return {"characters per second": steps * step.chars_per_step / (time.perf_counter() - began)}


if __name__ == "__main__":
    run_benchmark(main, repeats=12)
