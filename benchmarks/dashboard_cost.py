"""What the dashboard costs the training: the speed beside one that answers, and beside those that go wrong.

python -m benchmarks.dashboard_cost [--repeats 7]

Turns of the same training step alternate: with no dashboard wanted, with a real one, with one that is absent, frozen,
or answering errors. An evaluation's row and a line of the log are written each second of a turn, and are to be
delivered. A ratio is to the turn without a dashboard of the same round.
"""

import argparse
import json
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.differences import rotated
from benchmarks.machine import ROOT, machine, results_folder, results_name
from benchmarks.under_way import step_under_way
from configs.command_line import PRESETS, read_config, resolve
from configs.experiment import best_device, configs_of
from runs.delivery import SECONDS_TO_ANSWER, Delivery
from runs.files import write_atomically
from runs.run_folder import RunFolder
from runs.uploader import Uploader
from training import tracking
from training.resume import begin
from training.schedule import Stage
from training.step import TrainingStep

SECONDS_A_TURN = 4.0
BASE = "none"
ROW = {"loss.valid": 1.5, "loss.train": 1.6, "accuracy.valid": 0.5, "learning_rate": 1e-3, "seq_len": 64}


def main(arguments: list[str]) -> int:
    """Measure, print a table, write JSON; returns the exit code."""
    parser = argparse.ArgumentParser(description="What does the dashboard cost the training?")
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args(arguments)
    tracking.be_quiet()
    preset = "gpu" if best_device() == "cuda" else "quick"
    values = resolve(read_config(PRESETS / f"{preset}.yaml"), {"data.corpus": "play"})
    configs = configs_of(values)
    stage = configs.training.stage_rows[0]
    step = step_under_way(configs, stage)
    with tempfile.TemporaryDirectory() as name, ExitStack() as servers:
        folder = Path(name)
        addresses: dict[str, str | None] = {BASE: None, "absent": "http://127.0.0.1:9"}
        for state in ("answering", "frozen", "answering errors"):
            addresses[state] = servers.enter_context(server(folder / state.replace(" ", "_"), state))
        print(f"about {options.repeats * len(addresses) * SECONDS_A_TURN / 60 + 3:.0f} minutes", flush=True)
        rates: dict[str, list[float]] = {state: [] for state in addresses}
        for i in range(-1, options.repeats):  # the first round warms up
            for state in rotated(list(addresses), i):
                run = RunFolder.create(folder / "logs" / uuid.uuid4().hex)
                begin(run, values, configs.data.loaded, configs.data.vocabulary, "", [])
                run.save_status("in progress")
                rate = chars_per_second(step, stage, run, addresses[state], must_take=state == "answering")
                if i >= 0:
                    rates[state].append(rate)
    results: dict[str, Any] = {}
    print(f"{'dashboard':18} characters a second   against none (lowest to highest)")
    for state, found in rates.items():
        ratios = [rate / base for rate, base in zip(found, rates[BASE], strict=True)]
        middle = statistics.median(ratios)
        results[state] = {"chars_per_second": statistics.median(found), "ratio": middle, "ratios": ratios}
        print(f"{state:18} {statistics.median(found):14,.0f}   {middle:.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
    content = {"machine": machine(), "repeats": options.repeats, "dashboards": results}
    write_atomically(
        results_folder() / f"{results_name('dashboard_cost', parser, options)}.json",
        (json.dumps(content, indent=1) + "\n").encode(),
    )
    return 0


@contextmanager
def server(folder: Path, state: str) -> Iterator[str]:
    """A real dashboard in a state; its address."""
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
            os.kill(process.pid, signal.SIGSTOP)
        yield address
    finally:
        process.kill()
        process.wait()


def chars_per_second(
    step: TrainingStep, stage: Stage, run: RunFolder, address: str | None, must_take: bool = False
) -> float:
    """The speed of a turn of training steps, with a uploader at work where there is an address."""
    uploader = Uploader(Delivery(run, address), lambda line: None) if address else None
    if uploader:
        uploader.start_and_report()
    began = last_row = time.perf_counter()
    steps = 0
    while time.perf_counter() - began < SECONDS_A_TURN:
        step(stage).loss_sum.item()
        steps += 1
        if time.perf_counter() - last_row > 1:
            last_row = time.perf_counter()
            run.append_metrics({"step": steps, "corpus": "play", **ROW})
            run.append_log("a line for people")
            if uploader:
                uploader.wake.set()
    rate = steps * step.chars_per_step / (time.perf_counter() - began)
    if uploader:
        # One that is frozen is waited for: the next turn is to have the machine for itself.
        undelivered = uploader.end(SECONDS_TO_ANSWER + 1)
        if must_take and undelivered:
            sys.exit(f"{undelivered}: this measures nothing")
    return rate


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
