"""Long runs and killed runs: memory must not grow in an hour of training, and a killed run must lose nothing.

python -m benchmarks.soak [--minutes 60] [--kills 25] [--only memory|kills]

The long run evaluates every few seconds, draws samples, saves, and reports to a real dashboard. Each kill is a run of
its own: `kill -9` at a random moment, possibly while it saves, then `--resume`. It must end with the same weights as an
undisturbed run, bit for bit.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.command import key_words, machine, recipe, run_benchmark
from benchmarks.dashboard_cost import server
from runs.files import ROOT, write_json
from runs.run_folder import RunFolder
from training.checkpoint import load_weights

WARMUP_MINUTES = 5.0
ALLOWED_GROWTH = 0.02
MINUTES_PER_KILL = 0.8  # on one core
SECONDS_BETWEEN_SAMPLES = 5.0  # of the memory
SECONDS_BETWEEN_EVALUATIONS = 10.0  # of training


def main(options: Namespace, path: Path) -> int:
    """Run both parts, print the results, and write JSON; returns the exit code, 1 if memory grew or weights differ."""
    parts = {"memory": partial(soak, minutes=options.minutes), "kills": partial(kill, times=options.kills)}
    minutes = {"memory": options.minutes + 1, "kills": MINUTES_PER_KILL * options.kills}
    chosen = [options.only] if options.only else list(parts)
    print(f"about {sum(minutes[name] for name in chosen):.0f} minutes", flush=True)
    path = path.with_suffix(".json")
    results: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen:
            results[name] = parts[name](Path(folder)) | {"machine": machine()}
            write_json(path, results, indent=1)
    return 0 if all(results[name]["passed"] for name in chosen) else 1


def kill(folder: Path, times: int) -> dict[str, Any]:
    """Kill this many runs, each at a random moment, and resume them."""
    keys = key_words(recipe("soak_killed") | {"logs": str(folder / "kills")})
    undisturbed = finished(keys)
    began = time.monotonic()  # of a second run, which finds everything in the cache, as the killed runs do
    finished(keys)
    seconds = time.monotonic() - began
    generator = random.Random(0)
    steps: list[int] = []
    different: list[float] = []  # moments
    while len(steps) < times:
        process = start(keys)
        moment = generator.uniform(0.0, 1.0) * seconds
        try:
            process.communicate(timeout=moment)
            continue  # it finished before it could be killed
        except subprocess.TimeoutExpired:
            process.kill()
        run = run_in(process.communicate()[0])
        if run is None or not list(run.checkpoints.glob("*.pt")) or run.status()["status"] == "completed":
            continue  # killed before its first save or after its last: nothing to resume
        resumed = finished(["--resume", str(run.path)])
        step = next(event["step"] for event in run.events() if event["event"] == "resumed")
        is_same = weights_equal(undisturbed, resumed)
        steps.append(step)
        different += [] if is_same else [moment]
        outcome = "same weights" if is_same else "DIFFERENT WEIGHTS"
        print(f"kill {len(steps)}: after {moment:.1f} s, resumed from step {step}: {outcome}", flush=True)
    return {
        "times": times,
        "same_weights": times - len(different),
        "resumed_from_steps": steps,
        "different_after_seconds": different,
        "passed": not different,
    }


def soak(folder: Path, minutes: float) -> dict[str, Any]:
    """Train for a long time next to a dashboard, and watch the resident memory of both processes."""
    seconds = 60 * minutes  # of wall-clock time; the run's own budget counts training time and is never reached
    evaluations = max(2, int(seconds / SECONDS_BETWEEN_EVALUATIONS))
    budget = {"training.max_seconds": seconds, "training.evaluations": evaluations}
    keys = key_words(recipe("soak_long") | budget | {"logs": str(folder / "soak")})
    samples: list[tuple[float, float]] = []  # MiB of the training and of the dashboard
    with server(folder) as (address, dashboard):
        process = start(keys, f"{address}/api/v1/default")
        threading.Thread(target=process.stdout.read, daemon=True).start()  # type: ignore[union-attr]
        began = time.monotonic()
        while process.poll() is None:
            time.sleep(SECONDS_BETWEEN_SAMPLES)
            if time.monotonic() - began > seconds:
                process.send_signal(signal.SIGINT)
                process.wait()
            training_mib, dashboard_mib = resident(process.pid), resident(dashboard.pid)
            if training_mib is not None and dashboard_mib is not None:
                samples.append((training_mib, dashboard_mib))
    series = [mib for mib, _ in samples]
    found = growth(series, per_minute=60 / SECONDS_BETWEEN_SAMPLES)
    first, last = (f"{found[name]:.0f} MiB" for name in ("mib_at_first", "mib_at_last"))
    print(f"training: at most {first} in the ten minutes after the warm-up, {last} in the last ten", flush=True)
    run = RunFolder(next((folder / "soak" / "mlm").iterdir()))
    return {
        "passed": process.returncode == 130 and found["growth"] <= ALLOWED_GROWTH,
        "minutes": minutes,
        "exit_code": process.returncode,  # 130: ended by Ctrl-C, as intended
        "steps": run.metrics()[-1]["step"],
        "evaluations": len(run.metrics()),
        **found,
        "dashboard_mib": [samples[0][1], samples[-1][1]],
        "every_minute_mib": series[:: int(60 / SECONDS_BETWEEN_SAMPLES)],
    }


def growth(series: Sequence[float], per_minute: float) -> dict[str, float]:
    """Growth of resident memory (MiB) from the ten minutes after the warm-up to the last ten.

    Compares the highest values, because an evaluation takes some tens of MiB and gives them back.
    """
    ten = round(10 * per_minute)
    warm = series[min(round(WARMUP_MINUTES * per_minute), len(series) // 2) :]
    first, last = max(warm[:ten]), max(warm[-ten:])
    return {"mib_at_first": first, "mib_at_last": last, "growth": last / first - 1}


def start(keys: list[str], dashboard: str = "") -> subprocess.Popen[str]:
    """Start experiment.py with the address of a dashboard."""
    return subprocess.Popen(
        [sys.executable, "experiment.py", *keys],
        cwd=ROOT,
        env={**os.environ, "labml_app_url": dashboard},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finished(keys: list[str]) -> RunFolder:
    """Train without disturbance. Raises SystemExit if the run fails."""
    process = start(keys)
    output, _ = process.communicate()
    run = run_in(output)
    if process.returncode or run is None:
        sys.exit(f"a run failed: {output[-500:]}")
    return run


def run_in(output: str) -> RunFolder | None:
    """The run whose folder experiment.py has printed, if it came that far."""
    found = re.search(r"^run (.+)$", output, re.MULTILINE)
    return RunFolder(Path(found[1])) if found else None


def weights_equal(one: RunFolder, other: RunFolder) -> bool:
    """Whether two runs ended with the same weights, bit for bit."""
    first, second = (load_weights(run.checkpoints / "last.safetensors") for run in (one, other))
    return first.keys() == second.keys() and all(first[name].equal(second[name]) for name in first)


def resident(pid: int) -> float | None:
    """A process's resident memory in MiB; None if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20
    except OSError:
        return None


if __name__ == "__main__":
    only = {"choices": ("memory", "kills"), "help": "run one of the two and keep the other's result"}
    run_benchmark(main, {"only": only}, unnamed={"only"}, minutes=60.0, kills=25)
