"""Does it last? An hour of training whose memory must not grow, and runs that are killed and must lose nothing.

python -m benchmarks.soak [--minutes 60] [--kills 25] [--only memory|kills]

The training evaluates every few seconds, draws samples, saves, and streams to a real dashboard. Each kill is a run of
its own: `kill -9` at a random moment, saves included, `--resume`, and a comparison with the run that was left alone:
the same weights, bit for bit.
"""

import argparse
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
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.machine import ROOT, machine, results_folder, results_name
from runs.files import write_atomically
from runs.run_folder import RunFolder
from training.checkpoint import load_weights

WARM_MINUTES = 5.0
ALLOWED_GROWTH = 0.02
MINUTES_A_KILL = 0.8  # on one core
SECONDS_BETWEEN_LOOKS = 5.0
SECONDS_BETWEEN_EVALUATIONS = 10.0  # of training
SMALL = [
    "data.corpus=play",
    "model.d_model=32",
    "model.n_layers=2",
    "model.n_heads=2",
    "training.compile=false",
    "training.chars_per_step=1024",
    "training.evaluations=3",
    "training.stages=[{until: 0.5, seq_len: 32, masking_prob: 0.3}, {until: 1.0, seq_len: 64}]",
]
SOAKED = [
    "data.corpus=play",
    "training.compile=false",
    "training.stages=[{until: 1.0, seq_len: 64}]",
    "checkpoint.every_seconds=20",
    "sample.every_evaluations=3",
]


def main(arguments: list[str]) -> int:
    """Run both, print what was found, write JSON; returns the exit code, 1 where something grew or was lost."""
    parser = argparse.ArgumentParser(description="Does it last?")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--only", choices=("memory", "kills"), help="one of the two; the other's result stays")
    options = parser.parse_args(arguments)
    parts = {
        "memory": (options.minutes + 1, partial(soak, minutes=options.minutes)),
        "kills": (MINUTES_A_KILL * options.kills, partial(kill, times=options.kills)),
    }
    chosen = [options.only] if options.only else list(parts)
    print(f"about {sum(parts[name][0] for name in chosen):.0f} minutes", flush=True)
    options.only = None  # both parts are in one file
    path = results_folder() / f"{results_name('soak', parser, options)}.json"
    results: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen:
            results[name] = parts[name][1](Path(folder)) | {"machine": machine()}
            write_atomically(path, (json.dumps(results, indent=1) + "\n").encode())
    return 0 if all(results[name]["passed"] for name in chosen) else 1


def kill(folder: Path, times: int) -> dict[str, Any]:
    """Kill so many runs, each at another moment, and resume them."""
    keys = [*SMALL, "training.max_steps=150", "checkpoint.every_seconds=0.02", f"logs={folder / 'kills'}"]
    whole = finished(keys)
    began = time.monotonic()  # of a second one, which finds all computed that is computed once
    finished(keys)
    seconds = time.monotonic() - began
    generator = random.Random(0)
    steps: list[int] = []
    lost: list[float] = []
    while len(steps) < times:
        process = start(keys)
        moment = generator.uniform(0.0, 1.0) * seconds
        try:
            process.wait(moment)
            process.communicate()
            continue  # it was done before it could be killed
        except subprocess.TimeoutExpired:
            process.kill()
        output, _ = process.communicate()
        found = re.search(r"^run (.+)$", output, re.MULTILINE)
        run = RunFolder(Path(found[1])) if found else None
        if run is None or not list(run.checkpoints.glob("*.pt")) or run.status()["status"] == "completed":
            continue  # before its first save, or after its last: there is nothing to go on from
        again = resumed(run)
        step = next(event["step"] for event in run.events() if event["event"] == "resumed")
        is_same = weights_equal(whole, again)
        steps.append(step)
        lost += [] if is_same else [moment]
        words = f"after {moment:.1f} s, went on from step {step}"
        print(f"kill {len(steps)}: {words}: {'the same' if is_same else 'DIFFERENT'}", flush=True)
    same = times - len(lost)
    return {
        "times": times,
        "the_same": same,
        "went_on_from_steps": steps,
        "different_after_seconds": lost,
        "passed": same == times,
    }


def soak(folder: Path, minutes: float) -> dict[str, Any]:
    """Train for so long beside a dashboard, and watch the resident memory of both."""
    command = [sys.executable, "dashboard.py", "--port", "0", "--db", str(folder / "dashboard.sqlite3")]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    address = server.stdout.readline().split()[1].removesuffix("/runs")
    seconds = 60 * minutes  # of wall-clock, evaluations and saves included: the run's own budget is never reached
    keys = [
        *SOAKED,
        f"training.max_seconds={seconds}",
        f"training.evaluations={max(2, int(seconds / SECONDS_BETWEEN_EVALUATIONS))}",
        f"logs={folder / 'soak'}",
    ]
    process = start(keys, f"{address}/api/v1/default")
    threading.Thread(target=process.stdout.read, daemon=True).start()  # type: ignore[union-attr]
    began = time.monotonic()
    looks: list[tuple[float, float, float]] = []
    while process.poll() is None:
        time.sleep(SECONDS_BETWEEN_LOOKS)
        if time.monotonic() - began > seconds:
            process.send_signal(signal.SIGINT)
            process.wait()
        training_mib, server_mib = resident(process.pid), resident(server.pid)
        if training_mib is not None and server_mib is not None:
            looks.append((time.monotonic() - began, training_mib, server_mib))
    server.terminate()
    server.wait(10)
    series = [mib for _, mib, _ in looks]
    found = grown(series, per_minute=60 / SECONDS_BETWEEN_LOOKS)
    print(
        f"training: at most {found['mib_at_first']:.0f} MiB in the ten minutes after the warm-up,"
        f" {found['mib_at_last']:.0f} in the last ten ({found['growth']:+.2%})",
        flush=True,
    )
    run = RunFolder(next((folder / "soak" / "mlm").iterdir()))
    return {
        "passed": process.returncode == 130 and found["growth"] <= ALLOWED_GROWTH,
        "minutes": minutes,
        "exit_code": process.returncode,  # 130: ended by Ctrl-C, as meant
        "steps": run.metrics()[-1]["step"],
        "evaluations": len(run.metrics()),
        **found,
        "dashboard_mib": [looks[0][2], looks[-1][2]],
        "every_minute_mib": series[:: int(60 / SECONDS_BETWEEN_LOOKS)],
    }


def grown(series: Sequence[float], per_minute: float) -> dict[str, float]:
    """How a series of resident sizes in MiB has grown, from the ten minutes after the warm-up to the last ten.

    Their peaks are compared: in between, a training that evaluates takes some tens of MiB and gives them back.
    """
    ten = round(10 * per_minute)
    warm = series[min(round(WARM_MINUTES * per_minute), len(series) // 2) :]
    first, last = max(warm[:ten]), max(warm[-ten:])
    return {"mib_at_first": first, "mib_at_last": last, "growth": last / first - 1}


def start(keys: list[str], dashboard: str = "") -> subprocess.Popen[str]:
    """A run of experiment.py."""
    return subprocess.Popen(
        [sys.executable, "experiment.py", *keys],
        cwd=ROOT,
        env={**os.environ, "labml_app_url": dashboard},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finished(keys: list[str]) -> RunFolder:
    """A run that is left alone."""
    process = start(keys)
    output, _ = process.communicate()
    found = re.search(r"^run (.+)$", output, re.MULTILINE)
    if process.returncode or found is None:
        sys.exit(f"a run failed: {output[-500:]}")
    return RunFolder(Path(found[1]))


def resumed(run: RunFolder) -> RunFolder:
    """A run that goes on to its end."""
    return finished(["--resume", str(run.path)])


def weights_equal(one: RunFolder, other: RunFolder) -> bool:
    """Whether two runs have ended with the same weights, bit for bit."""
    first, second = (load_weights(run.checkpoints / "last.safetensors") for run in (one, other))
    return first.keys() == second.keys() and all(first[name].equal(second[name]) for name in first)


def resident(pid: int) -> float | None:
    """A process's resident memory in MiB; None where it has ended."""
    try:
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return None
    return int(found[1]) / 1024 if found else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
