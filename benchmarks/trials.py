"""Training runs to compare, one per variant and seed.

Results are kept in logs/benchmarks as they come, so an interrupted comparison continues where it
stopped. They count only for the commit that produced them; those of uncommitted code are not kept.
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.command import commit, in_minutes, key_words, machine
from data.corpus import load_corpus
from data.references.losses import window_losses
from runs.files import ROOT, write_json
from runs.run_folder import RunFolder

RUNS = ROOT / "logs" / "benchmarks"
COMMON = {
    **{"data.corpus": "tiny_shakespeare", "training.evaluations": 1, "sample.every_evaluations": 0},
    "training.threads": torch.get_num_threads(),  # the same for all runs
}
LOSSES = {
    "loss.valid": "windows of 256 (the protocol)",
    "loss.valid_at_seq_len": "windows as trained",
}
# {"variant", "preset", "seed", "keys"}; the keys are set on the command line
Trial = dict[str, Any]


def trials_of(
    variants: Mapping[str, Mapping[str, Any]],
    common: Mapping[str, Any],
    seeds: int,
    preset: str = "quick",
) -> list[Trial]:
    """Every variant with every seed, seed by seed, so an interrupted comparison has all variants of
    its first seeds."""
    return [
        {"variant": name, "preset": preset, "seed": seed, "keys": {**common, **keys}}
        for seed in range(seeds)
        for name, keys in variants.items()
    ]


def run_trials(
    path: Path,
    trials: list[Trial],
    measure: Callable[[RunFolder], dict[str, Any]],
    seconds_per_run: float,
) -> list[Trial]:
    """Train and measure all trials; returns them with their results. `path` is that of the
    benchmark's results.

    `seconds_per_run` is the expected duration. Raises RuntimeError if a run fails.
    """
    here = machine()
    # without its options, because the keys of a trial contain them
    benchmark = path.name.partition("-")[0]
    folder = (
        RUNS
        / path.parent.name
        / benchmark
        / f"{here['commit']}, torch {here['torch']}, {here['threads']} threads"
    )
    digests = [
        hashlib.sha256(json.dumps(trial, sort_keys=True).encode()).hexdigest() for trial in trials
    ]
    files = [folder / f"{digest[:16]}.json" for digest in digests]
    left = sum(not file.exists() for file in files)
    print(f"{len(trials)} runs, {left} to go ({in_minutes(left * seconds_per_run)})", flush=True)
    why_not = (
        "not kept, because the code has uncommitted changes" if here["commit"].endswith("+") else ""
    )
    print(f"finished runs are {why_not or f'kept in {folder}'}", flush=True)
    if left:
        # else the first run would compute them
        window_losses(load_corpus(trials[0]["keys"]["data.corpus"]))
    rows = []
    for trial, file in zip(trials, files, strict=True):
        if not file.exists():
            row = _train(trial, measure)
            left -= 1
            numbers = "  ".join(
                f"{k} {v:.4g}" for k, v in row["results"].items() if isinstance(v, float)
            )
            seconds = f"{row['wall_seconds']:.0f} s"
            print(
                f"{trial['variant']} seed {trial['seed']}: {numbers}  ({seconds}; {left} to go)",
                flush=True,
            )
            is_committed = row["commit"] == here["commit"] and not row["commit"].endswith("+")
            # else another process was first, and may have used its result
            if is_committed and not file.exists():
                write_json(file, row)
        rows.append(json.loads(file.read_text()) if file.exists() else row)
    return rows


def train(words: Sequence[str], program: str = "experiment") -> tuple[RunFolder, str]:
    """Train in a separate process; returns the run and the output. Raises RuntimeError if training
    fails."""
    command = [sys.executable, "-m", program, *words]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    run = run_in(result.stdout)
    if result.returncode or run is None:
        raise RuntimeError(
            f"{' '.join(command)} failed: {(result.stderr or result.stdout).strip()[-500:]}"
        )
    return run, result.stdout


def run_in(output: str) -> RunFolder | None:
    """The run whose folder experiment.py has printed, if it came that far."""
    found = re.search(r"^run (.+)$", output, re.MULTILINE)
    return RunFolder(Path(found[1])) if found else None


def last_losses(run: RunFolder) -> dict[str, Any]:
    """A finished run's validation losses, and the length of its last windows, its characters and
    its seconds."""
    row = run.metrics()[-1]
    return {key: row[key] for key in (*LOSSES, "accuracy.valid", "seq_len", "chars", "seconds")}


def _train(trial: Trial, measure: Callable[[RunFolder], dict[str, Any]]) -> Trial:
    """The trial with its results."""
    began, before = time.monotonic(), commit()
    keys = trial["keys"] | {"seed": trial["seed"], "name": "trial", "logs": str(RUNS)}
    run, output = train(["--preset", trial["preset"], *key_words(keys)], "benchmarks.models")
    for line in output.splitlines():
        if line.startswith("training without"):
            print(f"{trial['variant']}: {line}", flush=True)
    results = measure(run)
    shutil.rmtree(run.checkpoints)  # hundreds of megabytes per run with a table of n-grams
    return trial | {
        "results": results,
        "compiled": "\ncompiled in " in output,
        "wall_seconds": round(time.monotonic() - began, 1),
        # if the code changed meanwhile
        "commit": before if commit() == before else f"{before.rstrip('+')}+",
    }
