"""All checks and measurements that need a GPU, in one command: make gpu, or

python -m benchmarks.gpu [--minutes 12] [--only STEP] [--copy-to FOLDER] [--dry-run]

Each step is a process of its own with a time limit. The same command again takes the steps that
have not passed. --dry-run takes all with tiny shapes, on a CPU too. The report names the card and
tells whether each mark is met.
"""

import json
import os
import shutil
import signal
import sys
import time
from argparse import Namespace
from math import inf
from pathlib import Path
from typing import Any

from benchmarks.command import machine, markdown, run_benchmark
from benchmarks.gpu_steps.marks import MARKS
from benchmarks.gpu_steps.plan import STEPS
from benchmarks.gpu_steps.process import StepProcess
from configs.devices import best_device
from configs.keys import ConfigError
from runs.files import ROOT, write_json


def main(options: Namespace, path: Path) -> int:
    """Take the steps that have not passed; returns 1 if one has failed."""
    if not options.dry_run and best_device() != "cuda":
        raise ConfigError(
            "PyTorch found no CUDA device: --dry-run takes all steps with tiny shapes on a CPU"
        )

    facts = machine()
    kind = "gpu-dry-run" if options.dry_run else "gpu"
    name = f"{kind}-{facts['commit']}-torch-{facts['torch']}"
    folder = ROOT / "logs" / "benchmarks" / path.parent.name / name
    print(f"on {facts['machine']}; the steps write to {folder}", flush=True)

    # results of code that may have changed do not count
    if options.dry_run or facts["commit"].endswith("+"):
        shutil.rmtree(folder, ignore_errors=True)
    if options.dry_run:
        path = folder / "report"

    # ends the steps too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    end = inf if options.dry_run else time.monotonic() + 60 * options.minutes
    run = Run(path, folder, end, options)
    names = [options.only] if options.only else run.left()
    run.take(names)
    print("\n" + markdown(run.table()), flush=True)
    return 0 if run.has_passed() else 1


class Run:
    """A run of the command, until `end` in seconds of the monotonic clock."""

    def __init__(self, path: Path, folder: Path, end: float, options: Namespace):
        self.path = path
        self.folder = folder
        self.end = end
        self.options = options
        self.n_cores = os.cpu_count() or 1
        self.results: dict[str, dict[str, Any]] = {}
        for name in STEPS:
            file = folder / f"{name}.json"
            if file.exists():
                self.results[name] = json.loads(file.read_text())

    def left(self) -> list[str]:
        """The steps that have not passed."""
        passed = [name for name, result in self.results.items() if result["passed"]]
        return [name for name in STEPS if name not in passed]

    def take(self, waiting: list[str]) -> None:
        """Take steps, beside each other where their cores allow it, and report after each."""
        running: list[StepProcess] = []
        try:
            while waiting or running:
                used = sum(self.n_cores_of(step.name) for step in running)
                if waiting and used + self.n_cores_of(waiting[0]) <= self.n_cores:
                    running += self.begun(waiting.pop(0))
                for step in [step for step in running if step.is_over()]:
                    running.remove(step)
                    self.finish(step)
                time.sleep(0.2)
        finally:
            for step in running:
                step.end()

    def n_cores_of(self, name: str) -> int:
        """The processor cores that a step gets: all of them if it measures time."""
        if self.options.dry_run:
            return 1
        return self.n_cores if STEPS[name].is_alone else min(2, self.n_cores)

    def begun(self, name: str) -> list[StepProcess]:
        """The process of a step; none if too little time is left."""
        left = self.end - time.monotonic()
        entry = STEPS[name]
        if left < entry.least:
            print(f"{name}: skipped, {left:.0f} s are left", flush=True)
            return []
        seconds = min(left, entry.most)
        print(f"{name}: begins", flush=True)
        return [StepProcess(name, self.folder, seconds, self.options.dry_run)]

    def finish(self, step: StepProcess) -> None:
        """Keep the result of a step, and write the report, even if the next step brings the machine
        down."""
        result = self.results[step.name] = step.result()
        for what, value in result["rows"]:
            print(f"  {step.name}: {what}: {value}", flush=True)
        content = {"machine": machine(), "table": self.table(), "steps": self.results}
        report = self.path.with_suffix(".json")
        write_json(report, content, indent=1)
        if self.options.copy_to:
            self.options.copy_to.mkdir(parents=True, exist_ok=True)
            shutil.copy(report, self.options.copy_to)

    def table(self) -> list[dict[str, str]]:
        """The marks, then the steps with their rows, in the order of the plan."""
        figures = {}
        for result in self.results.values():
            figures |= result["figures"]

        table = []
        for name, mark in MARKS.items():
            row = {"": name, "mark": str(mark), "result": "not measured"}
            if name in figures:
                verdict = "met" if mark.is_met(figures[name]) else "missed"
                row["result"] = "rehearsed" if self.options.dry_run else verdict
                row["figure"] = f"{figures[name]:.3g}"
            table.append(row)

        for name in STEPS:
            result = self.results.get(name)
            if result is None:
                table.append({"": name, "result": "skipped"})
                continue
            verdict = "passed" if result["passed"] else "failed"
            seconds = f"{verdict}, {result['seconds']:.0f} s"
            table.append({"": name, "result": seconds})
            for what, value in result["rows"]:
                table.append({"": f"{name}: {what}", "figure": value})
        return table

    def has_passed(self) -> bool:
        return all(result["passed"] for result in self.results.values())


if __name__ == "__main__":
    folder = {"type": Path, "metavar": "FOLDER", "help": "copy the report there"}
    run_benchmark(
        main,
        unnamed={"only", "minutes", "copy_to", "dry_run"},
        minutes=12.0,
        only={"choices": list(STEPS), "help": "take one step"},
        copy_to=folder,
        dry_run={"action": "store_true", "help": "tiny shapes, on a CPU too"},
    )
