"""Long runs and killed runs: memory must not grow in an hour of training, and a killed run must
lose nothing.

python -m benchmarks.soak [--minutes 60] [--kills 25] [--only memory|kills]

The long run evaluates every few seconds, draws samples, saves, and reports to a real dashboard.
Each kill is a run of its own: `kill -9` at a random moment, possibly while it saves, then
`--resume`. It must end with the same weights as an undisturbed run, bit for bit.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks.command import (
    in_minutes,
    key_words,
    recipe,
    run_benchmark,
    save_results,
)
from benchmarks.trials import run_in, start, train
from runs.files import ROOT
from training.checkpoint import has_checkpoint, load_weights

WARMUP_MINUTES = 5.0
ALLOWED_GROWTH = 0.02
MINUTES_PER_KILL = 0.8  # on one core
SECONDS_BETWEEN_SAMPLES = 5.0  # of the memory
SECONDS_BETWEEN_EVALUATIONS = 10.0  # of training


def main(options: Namespace, path: Path) -> int:
    """Run both parts, print the results, and write JSON; returns the exit code, 1 if memory grew or
    weights differ."""
    parts = {"memory": options.minutes + 1, "kills": MINUTES_PER_KILL * options.kills}
    if options.only:
        parts = {options.only: parts[options.only]}
    print(in_minutes(60 * sum(parts.values())), flush=True)

    passed = True

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in parts:
            is_memory = part == "memory"
            results = (
                soak(folder, options.minutes)
                if is_memory
                else kill(folder, options.kills)
            )
            save_results(path.with_name(f"{path.name}_{part}"), **results)
            passed &= results["passed"]

    return 0 if passed else 1


def kill(folder: Path, times: int) -> dict[str, Any]:
    """Kill this many runs, each at a random moment, and resume them."""
    keys = key_words(recipe("soak_killed") | {"logs": str(folder / "kills")})
    os.environ["labml_app_url"] = ""  # noqa: SIM112, labml's own name
    undisturbed, _ = train(keys)
    expected = load_weights(undisturbed.checkpoints / "last.safetensors")
    # of a second run, which finds everything in the cache, as the killed runs do
    began = time.monotonic()
    train(keys)
    seconds = time.monotonic() - began
    generator = random.Random(0)
    kills: list[dict[str, Any]] = []

    while len(kills) < times:
        process = start(keys)
        moment = generator.uniform(0.0, seconds)
        time.sleep(moment)
        process.kill()
        run = run_in(process.communicate()[0])
        if run is None or not has_checkpoint(run.checkpoints):
            continue  # killed before its first save
        if run.status()["status"] == "completed":
            continue
        resumed, _ = train(["--resume", str(run.path)])
        weights = load_weights(resumed.checkpoints / "last.safetensors")
        result = {
            "after_seconds": round(moment, 1),
            "resumed_from_step": next(
                event["step"] for event in run.events() if event["event"] == "resumed"
            ),
            "has_same_weights": all(
                weights[name].equal(expected[name]) for name in expected
            ),
        }
        kills.append(result)
        print(f"kill {len(kills)}: {result}", flush=True)

    n_same = sum(each["has_same_weights"] for each in kills)
    words = f"{n_same} of {times} end with the same weights, bit for bit"
    table = [
        {
            "test": f"{times} runs killed at random moments, then resumed",
            "result": words,
        }
    ]
    return {"table": table, "kills": kills, "passed": n_same == times}


def soak(folder: Path, minutes: float) -> dict[str, Any]:
    """Train for a long time next to a dashboard, and watch the resident memory (MiB)."""
    # of wall-clock time; the run's own budget counts training time and is never reached
    seconds = 60 * minutes
    evaluations = max(2, int(seconds / SECONDS_BETWEEN_EVALUATIONS))
    budget = {"training.max_seconds": seconds, "training.evaluations": evaluations}
    keys = key_words(recipe("soak_long") | budget | {"logs": str(folder / "soak")})
    series = []

    with server(folder) as address:
        os.environ["labml_app_url"] = address  # noqa: SIM112, labml's own name
        process = start(keys, output=subprocess.DEVNULL)
        began = time.monotonic()
        while process.poll() is None:
            series.append(psutil.Process(process.pid).memory_info().rss / 2**20)
            time.sleep(SECONDS_BETWEEN_SAMPLES)
            if time.monotonic() - began > seconds:
                process.send_signal(signal.SIGINT)
                process.wait()

    grown = growth(series, per_minute=60 / SECONDS_BETWEEN_SAMPLES)
    words = (
        f"at most {grown['mib_at_first']:.0f} MiB in the ten minutes after the warm-up,"
        f" {grown['mib_at_last']:.0f} MiB in the last ten"
    )
    test = f"memory in {minutes:g} minutes of training with a dashboard"
    return {
        "table": [{"test": test, "result": words}],
        "passed": process.returncode == 130 and grown["growth"] <= ALLOWED_GROWTH,
        "minutes": minutes,
        "exit_code": process.returncode,  # 130: ended by Ctrl-C, as intended
        **grown,
        "every_minute_mib": series[:: int(60 / SECONDS_BETWEEN_SAMPLES)],
    }


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """The address of a dashboard."""
    database = str(folder / "dashboard.sqlite3")
    command = [sys.executable, "dashboard.py", "--port", "0", "--db", database]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)

    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[1].removesuffix("/runs")
    finally:
        process.kill()
        process.wait()


def growth(series: Sequence[float], per_minute: float) -> dict[str, float]:
    """Growth of resident memory (MiB) from the ten minutes after the warm-up to the last ten.

    Compares the highest values, because an evaluation takes some tens of MiB and gives them back.
    """
    ten = round(10 * per_minute)
    warm = series[min(round(WARMUP_MINUTES * per_minute), len(series) // 2) :]
    first = max(warm[:ten])
    last = max(warm[-ten:])
    return {"mib_at_first": first, "mib_at_last": last, "growth": last / first - 1}


if __name__ == "__main__":
    only = {"choices": ("memory", "kills"), "help": "run one of the two"}
    run_benchmark(main, unnamed={"only"}, minutes=60.0, kills=25, only=only)
