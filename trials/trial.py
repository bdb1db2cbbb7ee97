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
        self.facts: dict[str, Any] = {}  # for readers of trial.json

        fingerprints = [each.fingerprint for each in arms]
        same = json.dumps([fingerprints, with_tasks, torch.__version__])
        digest = hashlib.sha256(same.encode()).hexdigest()
        self.folder = logs / "trials" / digest[:16]
        self.path = self.folder / "trial.json"

        self.runs: dict[str, list[dict[str, Any]]] = {}
        for each in arms:
            self.runs[each.name] = []
        if self.path.exists():
            content = json.loads(self.path.read_text())
            self.runs = content["runs"]

    @property
    def all_runs(self) -> list[dict[str, Any]]:
        return list(chain(*self.runs.values()))

    def remove_interrupted(self) -> None:
        """Remove the folders of runs without results."""
        done = [run["run"] for run in self.all_runs]
        folders = (self.folder / "runs").glob("*/*")
        for path in folders:
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
                run = self.train(arm, pair)
                runs.append(run)
                self.save()

    def train(self, arm: Arm, pair: int) -> dict[str, Any]:
        """Train and measure a run in a process of its own, and delete its weights. Raises
        StoppedError if it fails."""
        began = time.time()
        seed = arm.seed(pair)
        words = [
            *without(arm.arguments, ("seed", "logs")),
            f"seed={seed}",
            f"logs={self.folder / 'runs'}",
        ]
        code, output, memory = run_program(arm.root, words)
        folder = re.search(r"^run (.+)$", output, re.MULTILINE)
        if code or folder is None:
            last = output.strip().rpartition("\n")[2]
            raise StoppedError(f"{arm.name}, seed {seed}: {last}")

        run = RunFolder(Path(folder[1]))
        row = run.metrics()[-1]
        row[MEMORY] = memory
        if self.with_tasks:
            from trials.tasks import task_scores  # needs scikit-learn

            row[TASKS] = task_scores(run)
        shutil.rmtree(run.checkpoints)

        result = {
            "run": run.name,
            "began": began,
            "took": time.time() - began,
        }
        for name in METRICS:
            if is_number(row.get(name)):
                result[name] = row[name]
        return result

    def differences(self, variant: Arm, metric: str, n_pairs: int) -> list[float]:
        """Variant minus base, pair by pair; empty if a run has no such metric."""
        runs = self.runs[variant.name][:n_pairs]
        base_runs = self.runs[self.base.name][:n_pairs]

        differences = []
        for own, base in zip(runs, base_runs, strict=True):
            if metric not in own or metric not in base:
                return []
            differences.append(own[metric] - base[metric])
        return differences

    def save(self, **facts: Any) -> None:
        self.facts |= facts
        write_json(self.path, self.facts | {"runs": self.runs}, indent=1)


def without(arguments: Sequence[str], keys: Sequence[str]) -> list[str]:
    """The arguments that set none of the keys."""
    return [each for each in arguments if each.partition("=")[0] not in keys]


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

    code = os.waitstatus_to_exitcode(status)
    megabytes = usage.ru_maxrss / 1000
    if sys.platform == "darwin":  # bytes there, kilobytes elsewhere
        megabytes /= 1024
    return code, output, megabytes
