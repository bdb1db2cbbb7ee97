"""All checks and measurements that need a GPU, in one command: make gpu, or

python -m benchmarks.gpu [--minutes 40] [--only STEP] [--dry-run]

Each step is a process of its own with a time limit. The same command again takes the steps that
have not passed. --dry-run takes all with tiny shapes, on a CPU too. The report becomes a section of
docs/results.md.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

from benchmarks.command import machine, run_benchmark, save_results
from benchmarks.page import fill_pages
from configs.devices import best_device
from configs.keys import ConfigError
from runs.files import ROOT, write_atomically, write_json

# The limit of each step, in minutes of a whole run of 40. Most steps need less; the last ones get
# what is left.
MINUTES = {
    "environment": 1,
    "tests": 2,
    "repeatable": 2,
    "graph": 2,
    "agreement": 2,
    "resume": 3,
    "ceilings": 1,
    "throughput": 10,
    "search": 5,
    "finalists": 8,
    "long": 12,
    "peers": 10,
}
IN_ALL = 40.0
DRY_MINUTES = 5.0
RESULTS_PAGE = ROOT / "docs" / "results.md"


def main(options: Namespace, path: Path) -> int:
    """Take the steps that have not passed; returns 1 if one has failed."""
    if not options.dry_run and best_device() != "cuda":
        raise ConfigError(
            "PyTorch found no CUDA device: --dry-run takes all steps with tiny shapes on a CPU"
        )

    facts = machine()
    name = f"{path.name}{' dry run' * options.dry_run}, {facts['commit']}, torch {facts['torch']}"
    folder = ROOT / "logs" / "benchmarks" / path.parent.name / name

    # results of code that may have changed do not count
    if options.dry_run or facts["commit"].endswith("+"):
        shutil.rmtree(folder, ignore_errors=True)
    minutes = options.minutes
    if options.dry_run:
        path = folder / "report"
        minutes = DRY_MINUTES

    end = time.monotonic() + 60 * minutes
    for name in [options.only] if options.only else MINUTES:
        file = folder / f"{name}.json"
        if (
            not options.only
            and file.exists()
            and json.loads(file.read_text())["passed"]
        ):
            print(f"{name}: finished before", flush=True)
            continue
        share = 1 if options.dry_run else MINUTES[name] / IN_ALL
        limit = min(end - time.monotonic(), 60 * minutes * share)
        write_json(
            file, take(name, folder, limit, minutes / IN_ALL, options.dry_run), indent=1
        )
        report(path, folder)  # even if the next step brings the machine down

    has_passed = report(path, folder)
    if not options.dry_run:
        add_section(path)
    return 0 if has_passed else 1


def take(
    name: str, folder: Path, limit: float, scale: float, is_dry: bool
) -> dict[str, Any]:
    """The result of a step, which has `limit` seconds. Its training budgets are multiplied by
    `scale`."""
    if limit < 1:
        return {
            "passed": False,
            "rows": [[name, "not run: no time left"]],
            "seconds": 0.0,
        }
    print(f"{name}: at most {limit:.0f} s", flush=True)
    began = time.monotonic()
    file = folder / f"{name}.rows.json"
    write_json(file, {"passed": False, "rows": []})
    command = [
        sys.executable,
        "-m",
        "benchmarks.gpu_steps",
        name,
        str(file),
        f"{scale:g}",
    ]
    process = subprocess.Popen(
        command + ["--dry-run"] * is_dry,
        cwd=ROOT,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    reason = ""

    try:
        text, _ = process.communicate(timeout=limit)
        if process.returncode:
            reason = [f"exit code {process.returncode}", *text.splitlines()][-1]
    except BaseException as error:  # with the programs that it has started
        os.killpg(process.pid, signal.SIGKILL)
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        text, _ = process.communicate()
        reason = f"stopped after {limit:.0f} s"

    result = json.loads(file.read_text())
    if reason:
        result["passed"] = False
        result["rows"].append(["failed", reason])

    for what, value in result["rows"]:
        print(f"  {what}: {value}", flush=True)

    seconds = round(time.monotonic() - began, 1)
    return result | {"seconds": seconds, "output": text[-4_000:]}


def report(path: Path, folder: Path) -> bool:
    """Write the table of all results so far, in the order of the steps; returns whether all have
    passed."""
    table = []
    results = {}

    for name in MINUTES:
        file = folder / f"{name}.json"
        if not file.exists():
            continue
        result = results[name] = json.loads(file.read_text())
        outcome = "passed" if result["passed"] else "failed"
        table.append(
            {"step": name, "result": outcome, "seconds": f"{result['seconds']:.0f}"}
        )
        for what, value in result["rows"]:
            table.append({"step": f"{name}: {what}", "result": str(value)})

    save_results(path, table, steps=results)
    return all(result["passed"] for result in results.values())


def add_section(path: Path) -> None:
    """Give the result a section of docs/results.md, if it has none, and fill the pages."""
    machine = path.parent.name
    block = f"<!-- from {machine}/{path.name}.json -->\n<!-- end -->\n\n"
    text = RESULTS_PAGE.read_text(encoding="utf-8")

    if block.partition("\n")[0] not in text:
        section = f"## GPU: {machine}\n\n`python -m benchmarks.gpu`.\n\n{block}"
        text = text.replace("## Not measured", f"{section}## Not measured", 1)
        write_atomically(RESULTS_PAGE, text.encode())

    fill_pages()


if __name__ == "__main__":
    words = "all steps with tiny shapes, on a CPU too, in 5 minutes"
    run_benchmark(
        main,
        unnamed={"only", "minutes", "dry_run"},
        minutes=IN_ALL,
        only={"choices": list(MINUTES), "help": "take one step"},
        dry_run={"action": "store_true", "help": words},
    )
