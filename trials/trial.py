"""A trial: its runs, one after the other, and their results."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from runs.errors import StoppedError
from runs.files import write_json
from runs.run_folder import RunFolder
from trials.arms import Arm, environment
from trials.measures import MEMORY, TASKS, last_row


class Trial:
    """The arms of a trial, the base first, and the results of their runs, which are kept in
    trial.json in its folder."""

    def __init__(self, logs: Path, arms: Sequence[Arm], with_tasks: bool):
        """A trial with the same arms and the same version of PyTorch continues in its folder."""
        self.base, *self.variants = arms
        self.with_tasks = with_tasks
        self.about: dict[str, Any] = {
            "arms": {each.name: each.fingerprint for each in arms},
            "with_tasks": with_tasks,
            "torch": torch.__version__,
        }
        digest = hashlib.sha256(json.dumps(self.about).encode()).hexdigest()
        self.folder = logs / "trials" / digest[:16]
        self.path = self.folder / "trial.json"
        self.runs: list[dict[str, Any]] = []
        if self.path.exists():
            self.runs = json.loads(self.path.read_text())["runs"]

    def results(self, arm: Arm, pair: int) -> dict[str, float] | None:
        """The metrics of a run, if it is done."""
        for run in self.runs:
            if (run["arm"], run["pair"]) == (arm.name, pair):
                return run["results"]
        return None

    def differences(self, variant: Arm, metric: str, n_pairs: int) -> list[float]:
        """Variant minus base, pair by pair."""
        differences = []
        for pair in range(n_pairs):
            own = self.results(variant, pair)
            base = self.results(self.base, pair)
            if own and base and metric in own and metric in base:
                differences.append(own[metric] - base[metric])
        return differences

    def train_pair(self, pair: int, variants: Sequence[Arm]) -> None:
        """Train the missing runs of a pair. The base comes first in every other pair, because the
        speed of a machine drifts."""
        order = [self.base, *variants]
        if pair % 2:
            order.reverse()
        for arm in order:
            if self.results(arm, pair) is None:
                self.runs.append(self.train(arm, pair))
                self.save()

    def train(self, arm: Arm, pair: int) -> dict[str, Any]:
        """Train and measure a run in a process of its own, and delete its weights. Raises
        StoppedError if it fails."""
        began = time.monotonic()
        own = {"seed": arm.seed(pair), "logs": self.folder / "runs"}
        words = [word for word in arm.arguments if word.partition("=")[0] not in own]
        words += [f"{key}={value}" for key, value in own.items()]
        code, output, memory = run_program(arm.root, words)
        folder = re.search(r"^run (.+)$", output, re.MULTILINE)
        if code or folder is None:
            last = output.strip().rpartition("\n")[2]
            raise StoppedError(f"{arm.name}, seed {own['seed']}: {last}")

        run = RunFolder(Path(folder[1]))
        results = last_row(run) | {MEMORY: memory}
        if self.with_tasks:
            from trials.tasks import task_scores  # needs scikit-learn

            results[TASKS] = task_scores(run)
        shutil.rmtree(run.checkpoints)
        return {
            "arm": arm.name,
            "pair": pair,
            "run": run.name,
            "results": results,
            "wall_seconds": round(time.monotonic() - began, 1),
        }

    def save(self, **facts: Any) -> None:
        self.about |= facts
        write_json(self.path, self.about | {"runs": self.runs}, indent=1)


def run_program(root: Path, words: Sequence[str]) -> tuple[int, str, float]:
    """Run experiment.py of the code in `root`; returns the exit code, the output, and the memory at
    most, in MB."""
    process = subprocess.Popen(
        [sys.executable, str(root / "experiment.py"), *words],
        env=environment(root),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    try:
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
    except BaseException:
        process.terminate()
        process.wait()
        raise
    kilobytes = usage.ru_maxrss / (1024 if sys.platform == "darwin" else 1)
    return os.waitstatus_to_exitcode(status), output, kilobytes / 1000
