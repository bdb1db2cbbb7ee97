"""A trial: its runs, one after the other, and what they say until now."""

import hashlib
import json
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
from runs.files import ROOT, write_json
from runs.run_folder import RunFolder
from runs.schema import is_number
from trials.arms import Arm, code_version

# of the last row of a run: the name of the metric, and whether more is better
METRICS = ("loss.valid", "accuracy.valid", "excess", "chars_per_second")


class Trial:
    """The arms of a trial, the base first, and the results of their runs, which are kept in
    trial.json in its folder."""

    def __init__(self, logs: Path, arms: Sequence[Arm], equal: str):
        """A trial with the same arms, code and version of PyTorch continues in its folder."""
        self.base, *self.variants = arms
        self.about = {
            "arms": {each.name: each.fingerprint for each in arms},
            "equal": equal,
            "code": code_version(),
            "torch": torch.__version__,
        }
        digest = hashlib.sha256(json.dumps(self.about).encode()).hexdigest()
        self.folder = logs / "trials" / digest[:16]
        self.path = self.folder / "trial.json"
        self.runs: list[dict[str, Any]] = []
        if self.path.exists():
            self.runs = json.loads(self.path.read_text())["runs"]

    def result(self, arm: Arm, pair: int) -> dict[str, float] | None:
        """The metrics of a run, if it is done."""
        for run in self.runs:
            if (run["arm"], run["pair"]) == (arm.name, pair):
                return run["results"]
        return None

    def train_pair(self, pair: int, variants: Sequence[Arm]) -> None:
        """Train the missing runs of a pair. The base comes first in every other pair, because the
        speed of a machine drifts."""
        order = [self.base, *variants]
        if pair % 2:
            order.reverse()
        for arm in order:
            if self.result(arm, pair) is None:
                self.runs.append(self.train(arm, pair))
                self.save()

    def train(self, arm: Arm, pair: int) -> dict[str, Any]:
        """Train and measure a run in a process of its own, and delete its weights. Raises
        StoppedError if it fails."""
        began = time.monotonic()
        own = {"seed": arm.seed(pair), "logs": self.folder / "runs"}
        words = [word for word in arm.arguments if word.partition("=")[0] not in own]
        words += [f"{key}={value}" for key, value in own.items()]
        command = [sys.executable, str(ROOT / "experiment.py"), *words]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            output, _ = process.communicate()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        folder = re.search(r"^run (.+)$", output, re.MULTILINE)
        if process.returncode or folder is None:
            last = output.strip().rpartition("\n")[2]
            raise StoppedError(f"{arm.name}, seed {arm.seed(pair)}: {last}")

        run = RunFolder(Path(folder[1]))
        row = run.metrics()[-1]
        shutil.rmtree(run.checkpoints)
        return {
            "arm": arm.name,
            "pair": pair,
            "seed": arm.seed(pair),
            "run": run.name,
            "results": {
                name: row[name] for name in METRICS if is_number(row.get(name))
            },
            "wall_seconds": round(time.monotonic() - began, 1),
        }

    def differences(self, variant: Arm, metric: str = "loss.valid") -> list[float]:
        """Variant minus base, pair by pair."""
        differences = []
        for pair in range(len(self.runs)):
            own = self.result(variant, pair)
            base = self.result(self.base, pair)
            if own and base and metric in own:
                differences.append(own[metric] - base[metric])
        return differences

    def save(self, **facts: Any) -> None:
        self.about |= facts
        write_json(self.path, self.about | {"runs": self.runs}, indent=1)
