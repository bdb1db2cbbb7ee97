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
from collections.abc import Callable
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
    "preset": "quick",
    "data.corpus": "tiny_shakespeare",
    "training.evaluations": 1,
    "training.threads": torch.get_num_threads(),  # the same for all runs
    "sample.every_evaluations": 0,
}
# name -> keys, and the preset that they are set on top of
Variants = dict[str, dict[str, Any]]
Trial = dict[str, Any]  # {"variant", "seed", "keys"}


def run_trials(
    path: Path,
    variants: Variants,
    seeds: int,
    measure: Callable[[RunFolder], dict[str, Any]],
    seconds_per_run: float,
) -> list[Trial]:
    """Train and measure every variant with every seed; returns the trials with their results.

    The keys of a variant come on top of COMMON. `path` is that of the benchmark's results;
    `seconds_per_run` is the expected duration. Raises RuntimeError if a run fails.
    """
    here = machine()
    # without its options, because the keys of a trial contain them
    benchmark = path.name.partition("-")[0]
    version = f"{here['commit']}, torch {here['torch']}, {here['threads']} threads"
    folder = RUNS / path.parent.name / benchmark / version
    trials = trials_by_file(folder, variants, seeds)

    left = sum(not file.exists() for file in trials)
    print(
        f"{len(trials)} runs, {left} to go ({in_minutes(left * seconds_per_run)})",
        flush=True,
    )
    why_not = "not kept, because the code has uncommitted changes"
    is_committed = not here["commit"].endswith("+")
    print(
        f"finished runs are {f'kept in {folder}' if is_committed else why_not}",
        flush=True,
    )

    if left:  # else the first run would compute them
        any_trial = next(iter(trials.values()))
        window_losses(load_corpus(any_trial["keys"]["data.corpus"]))
    rows = []
    for file, trial in trials.items():
        if file.exists():
            rows.append(json.loads(file.read_text()))
            continue
        row = _train(trial, measure)
        rows.append(row)
        left -= 1
        numbers = [
            f"{k} {v:.4g}" for k, v in row["results"].items() if isinstance(v, float)
        ]
        print(
            f"{trial['variant']} seed {trial['seed']}: {'  '.join(numbers)}"
            f"  ({row['wall_seconds']:.0f} s; {left} to go)",
            flush=True,
        )
        if is_committed and row["commit"] == here["commit"]:
            write_json(file, row)

    return rows


def trials_by_file(folder: Path, variants: Variants, seeds: int) -> dict[Path, Trial]:
    """All trials, each with the file of its result."""
    trials: dict[Path, Trial] = {}
    # an interrupted comparison has all variants of its first seeds
    for seed in range(seeds):
        for name, keys in variants.items():
            trial: Trial = {
                "variant": name,
                "seed": seed,
                "keys": COMMON | keys,
            }
            digest = hashlib.sha256(
                json.dumps(trial, sort_keys=True).encode()
            ).hexdigest()
            trials[folder / f"{digest[:16]}.json"] = trial
    return trials


def start(words: list[str], output: int = subprocess.PIPE) -> subprocess.Popen[str]:
    """A training in a separate process, with its errors in the output."""
    command = [sys.executable, "experiment.py", *words]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, text=True
    )


def train(words: list[str]) -> tuple[RunFolder, str]:
    """Train in a separate process; returns the run and the output. Raises RuntimeError if training
    fails."""
    process = start(words)
    output, _ = process.communicate()
    run = run_in(output)
    if process.returncode or run is None:
        raise RuntimeError(f"experiment.py {' '.join(words)} failed: {output[-500:]}")
    return run, output


def run_in(output: str) -> RunFolder | None:
    """The run whose folder experiment.py has printed, if it came that far."""
    line = re.search(r"^run (.+)$", output, re.MULTILINE)
    return RunFolder(Path(line[1])) if line else None


def last_losses(run: RunFolder) -> dict[str, Any]:
    """A finished run's validation loss, its characters and its seconds."""
    row = run.metrics()[-1]
    return {key: row[key] for key in ("loss.valid", "chars", "seconds")}


def _train(trial: Trial, measure: Callable[[RunFolder], dict[str, Any]]) -> Trial:
    """The trial with its results."""
    began = time.monotonic()
    before = commit()
    keys = trial["keys"] | {"seed": trial["seed"], "name": "trial", "logs": str(RUNS)}
    run, output = train(["--preset", keys.pop("preset"), *key_words(keys)])

    for line in output.splitlines():
        if line.startswith("training without"):
            print(f"{trial['variant']}: {line}", flush=True)

    results = measure(run)
    # hundreds of megabytes per run with a table of n-grams
    shutil.rmtree(run.checkpoints)
    return trial | {
        "results": results,
        "wall_seconds": round(time.monotonic() - began, 1),
        # if the code changed meanwhile
        "commit": before if commit() == before else f"{before.rstrip('+')}+",
    }
