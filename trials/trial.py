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
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from runs.errors import StoppedError
from runs.files import write_json
from runs.run_folder import RunFolder
from runs.schema import is_number
from trials.arms import Arm, environment

# the metrics of a run, with their units; more of these is better, or less
MEMORY = "memory"
TASKS = "tasks"
LESS = {"loss.valid": "nats", "excess": "nats", MEMORY: "MB"}
MORE = {"accuracy.valid": "", "chars_per_second": "per second", TASKS: ""}
METRICS = LESS | MORE


class Trial:
    """The arms of a trial, the base first, and the results of their runs, which are kept in
    trial.json in its folder.

    `runs` has a list per arm, with a dict of facts and metrics per pair.
    """

    def __init__(self, logs: Path, arms: Sequence[Arm], with_tasks: bool):
        """A trial with the same arms and the same version of PyTorch continues in its folder."""
        self.base, *self.variants = arms
        self.with_tasks = with_tasks
        fingerprints = [each.fingerprint for each in arms]
        same = json.dumps([fingerprints, with_tasks, torch.__version__])
        digest = hashlib.sha256(same.encode()).hexdigest()
        self.folder = logs / "trials" / digest[:16]
        self.path = self.folder / "trial.json"
        self.facts: dict[str, Any] = {}  # for readers of trial.json
        self.runs: dict[str, list[dict[str, Any]]] = {each.name: [] for each in arms}
        if self.path.exists():
            self.runs = json.loads(self.path.read_text())["runs"]

    @property
    def all_runs(self) -> list[dict[str, Any]]:
        return list(chain(*self.runs.values()))

    def remove_interrupted(self) -> None:
        """Remove the folders of runs without results."""
        done = [run["run"] for run in self.all_runs]
        for path in (self.folder / "runs").glob("*/*"):
            if RunFolder(path).name not in done:
                shutil.rmtree(path)

    def train_pair(self, pair: int, variants: Sequence[Arm]) -> None:
        """Train the missing runs of a pair. The base comes first in every other pair, because the
        speed of a machine drifts; not in the first one, so that wrong code of the user fails at
        once."""
        order = [*variants, self.base]
        if pair % 2:
            order.reverse()
        for arm in order:
            runs = self.runs[arm.name]
            if len(runs) == pair:
                runs.append(self.train(arm, pair))
                self.save()

    def train(self, arm: Arm, pair: int) -> dict[str, Any]:
        """Train and measure a run in a process of its own, and delete its weights. Raises
        StoppedError if it fails."""
        began = time.time()
        own = {"seed": arm.seed(pair), "logs": self.folder / "runs"}
        words = [word for word in arm.arguments if word.partition("=")[0] not in own]
        words += [f"{key}={value}" for key, value in own.items()]
        code, output, memory = run_program(arm.root, words)
        folder = re.search(r"^run (.+)$", output, re.MULTILINE)
        if code or folder is None:
            last = output.strip().rpartition("\n")[2]
            raise StoppedError(f"{arm.name}, seed {own['seed']}: {last}")

        run = RunFolder(Path(folder[1]))
        row = run.metrics()[-1] | {MEMORY: memory}
        if self.with_tasks:
            from trials.tasks import task_scores  # needs scikit-learn

            row[TASKS] = task_scores(run)
        shutil.rmtree(run.checkpoints)
        results = {name: row[name] for name in METRICS if is_number(row.get(name))}
        about = {"run": run.name, "began": began, "took": time.time() - began}
        return about | results

    def differences(self, variant: Arm, metric: str, n_pairs: int) -> list[float]:
        """Variant minus base, pair by pair; empty if a run has no such metric."""
        pairs = zip(self.runs[variant.name], self.runs[self.base.name], strict=False)
        first = list(pairs)[:n_pairs]
        if not all(metric in own and metric in base for own, base in first):
            return []
        return [own[metric] - base[metric] for own, base in first]

    def save(self, **facts: Any) -> None:
        self.facts |= facts
        write_json(self.path, self.facts | {"runs": self.runs}, indent=1)


def run_program(root: Path, words: Sequence[str]) -> tuple[int, str, float]:
    """Run experiment.py of the code in `root`; returns the exit code, the output, and the memory at
    most, in MB."""
    command = [sys.executable, str(root / "experiment.py"), *words]
    process = subprocess.Popen(
        command,
        env=environment(root),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
    except BaseException:
        process.terminate()
        process.wait()
        raise
    kilobytes = usage.ru_maxrss / (1024 if sys.platform == "darwin" else 1)
    return os.waitstatus_to_exitcode(status), output, kilobytes / 1000
