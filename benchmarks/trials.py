"""Trained runs that are compared: one for each variant and seed. They are kept beside the runs, as they come: a
comparison that was broken off goes on where it was, and a new clone measures anew. What cannot be told from other
code, as it is not committed, is measured anew too."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import ROOT, commit, machine
from data.corpus import load_corpus
from data.reference_losses import counting_losses
from runs.files import write_atomically
from runs.run_folder import RunFolder

RUNS = ROOT / "logs" / "benchmarks"
Measure = Callable[[RunFolder], dict[str, Any]]


@dataclass(frozen=True)
class Trial:
    """One run: the keys that are set on the command line, and the seed."""

    variant: str
    seed: int
    keys: Mapping[str, Any]

    @property
    def arguments(self) -> list[str]:
        words = {key: value if isinstance(value, str) else json.dumps(value) for key, value in self.keys.items()}
        return [*(f"{key}={word}" for key, word in words.items()), f"seed={self.seed}"]


def trials_of(variants: Mapping[str, Mapping[str, Any]], common: Mapping[str, Any], seeds: int) -> list[Trial]:
    """Every variant with every seed; seed by seed, so that what is there when it is broken off can be compared."""
    return [Trial(name, seed, {**common, **keys}) for seed in range(seeds) for name, keys in variants.items()]


def run_trials(
    path: Path,
    trials: Sequence[Trial],
    measure: Measure,
    seconds: float,
    program: str = "experiment",
    preset: str = "quick",
) -> list[dict[str, Any]]:
    """Train and measure what was not measured yet; returns the results of all `trials`, and writes them to `path`.

    `seconds` is about how long one takes on the machine that the recorded results are from. `program` is the module
    that trains: experiment, or one that adds models to it. What another commit has measured does not count. Raises
    SystemExit where a run fails.
    """
    here = machine()
    code = f"{here['commit']}, torch {here['torch']}, {here['threads']} threads"
    keeping = RUNS / path.parent.name / code / path.name
    is_known = here["commit"][-1] != "+" and here["commit"] != "unknown"
    kept = json.loads(keeping.read_text())["trials"] if is_known and keeping.exists() else []
    kept = [row for row in kept if row["commit"] == here["commit"]]
    known = {(row["variant"], row["seed"], _fingerprint(row["keys"])): row for row in kept}
    found = [known.get((trial.variant, trial.seed, _fingerprint(trial.keys))) for trial in trials]
    left = found.count(None)
    taken = [row["wall_seconds"] for row in known.values()]
    minutes = left * (statistics.median(taken) if taken else seconds) / 60
    print(
        f"{len(trials)} runs, {left} to go: about {minutes:.0f} minutes; what is done is kept in {keeping}", flush=True
    )
    if left:
        counting_losses(load_corpus(str(trials[0].keys["data.corpus"])))  # else the first run would share the machine
    for i, trial in enumerate(trials):
        if found[i] is not None:
            continue
        before = commit()  # it may be another one than at the beginning, and another one afterwards
        row = _train(trial, measure, program, preset)
        row["commit"] = before if commit() == before else f"{before.rstrip('+')}+"
        known[trial.variant, trial.seed, _fingerprint(trial.keys)] = found[i] = row
        _save(keeping, here, list(known.values()))
        left -= 1
        numbers = "  ".join(f"{name} {value:.4g}" for name, value in row["results"].items() if isinstance(value, float))
        print(f"{trial.variant} seed {trial.seed}: {numbers}  ({row['wall_seconds']:.0f} s; {left} to go)", flush=True)
    rows = [row for row in found if row is not None]
    _save(path, here, rows)
    return rows


def _train(trial: Trial, measure: Measure, program: str, preset: str) -> dict[str, Any]:
    began = time.monotonic()
    command = [sys.executable, "-m", program, "--preset", preset, *trial.arguments, "name=trial", f"logs={RUNS}"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if result.returncode:
        sys.exit(f"{trial.variant}: {' '.join(command)} failed: {(result.stderr or result.stdout).strip()[-500:]}")
    lines = result.stdout.splitlines()
    (path,) = (line.removeprefix("run ") for line in lines if line.startswith("run "))
    for line in lines:
        if line.startswith("torch.compile does not work"):  # then it was measured without
            print(f"{trial.variant}: {line}", flush=True)
    results = measure(RunFolder(Path(path)))
    return {
        "variant": trial.variant,
        "seed": trial.seed,
        "keys": dict(trial.keys),
        "results": results,
        "compiled": any(line.startswith("compiled for") for line in lines),
        "wall_seconds": round(time.monotonic() - began, 1),
    }


def _save(path: Path, here: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> None:
    write_atomically(path, (json.dumps({"machine": here, "trials": list(rows)}, indent=1) + "\n").encode())


def _fingerprint(keys: Mapping[str, Any]) -> str:
    return json.dumps(dict(keys), sort_keys=True)
