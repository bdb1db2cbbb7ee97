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
from benchmarks.page import PAGES, filled
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
}
MINUTES |= {"throughput": 10, "search": 5, "finalists": 8, "long": 12, "peers": 10}
IN_ALL, DRY_MINUTES = 40.0, 5.0
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
    path, minutes = (folder / "report", DRY_MINUTES) if options.dry_run else (path, options.minutes)
    end = time.monotonic() + 60 * minutes
    for name in [options.only] if options.only else MINUTES:
        file = folder / f"{name}.json"
        if not options.only and file.exists() and json.loads(file.read_text())["passed"]:
            print(f"{name}: finished before", flush=True)
            continue
        limit = min(
            end - time.monotonic(),
            60 * minutes * (1 if options.dry_run else MINUTES[name] / IN_ALL),
        )
        write_json(file, take(name, folder, limit, minutes / IN_ALL, options.dry_run), indent=1)
        report(path, folder)  # even if the next step brings the machine down
    found = report(path, folder)
    if not options.dry_run:
        add_section(path)
    return int(any(not result["passed"] for result in found.values()))


def take(name: str, folder: Path, limit: float, scale: float, is_dry: bool) -> dict[str, Any]:
    """The result of a step, which has `limit` seconds. Its training budgets are multiplied by
    `scale`."""
    if limit < 1:
        return {"passed": False, "rows": [[name, "not run: no time left"]], "seconds": 0.0}
    print(f"{name}: at most {limit:.0f} s", flush=True)
    began, output = time.monotonic(), folder / f"{name}.rows.json"
    output.unlink(missing_ok=True)
    words = [
        sys.executable,
        "-m",
        "benchmarks.gpu_steps",
        name,
        str(output),
        f"{scale:g}",
        *["--dry-run"] * is_dry,
    ]
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    process = subprocess.Popen(words, cwd=ROOT, start_new_session=True, **options)
    try:
        text, _ = process.communicate(timeout=limit)
        reason = (
            ""
            if process.returncode == 0
            else [f"exit code {process.returncode}", *text.splitlines()][-1]
        )
    except BaseException as error:  # with the programs that it has started
        os.killpg(process.pid, signal.SIGKILL)
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        text, reason = process.communicate()[0], f"stopped after {limit:.0f} s"
    found = json.loads(output.read_text() if output.exists() else '{"passed": false, "rows": []}')
    rows = found["rows"] + ([["failed", reason]] if reason else [])
    for what, value in rows:
        print(f"  {what}: {value}", flush=True)
    facts = {"seconds": round(time.monotonic() - began, 1), "output": text[-4_000:]}
    return {"passed": found["passed"] and not reason, "rows": rows, **facts}


def report(path: Path, folder: Path) -> dict[str, dict[str, Any]]:
    """Write the table of all results so far; returns them, in the order of the steps."""
    files, table = {name: folder / f"{name}.json" for name in MINUTES}, []
    found = {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}
    for name, each in found.items():
        result = "passed" if each["passed"] else "failed"
        table.append({"step": name, "result": result, "seconds": f"{each['seconds']:.0f}"})
        table += [{"step": f"{name}: {what}", "result": str(value)} for what, value in each["rows"]]
    save_results(path, table, steps=found)
    return found


def add_section(path: Path) -> None:
    """Give the result a section of docs/results.md, if it has none, and fill the pages."""
    name = f"{path.parent.name}/{path.name}.json"
    text = RESULTS_PAGE.read_text(encoding="utf-8")
    if name not in text:
        section = f"## GPU: {path.parent.name}\n\n`python -m benchmarks.gpu`.\n\n<!-- from {name} -->\n<!-- end -->\n\n"
        write_atomically(
            RESULTS_PAGE, text.replace("## Not measured", f"{section}## Not measured", 1).encode()
        )
    for page in PAGES:
        write_atomically(page, filled(page.read_text(encoding="utf-8")).encode())


if __name__ == "__main__":
    dry_run = {
        "action": "store_true",
        "help": "all steps with tiny shapes, on a CPU too, in 5 minutes",
    }
    flags: dict[str, Any] = {
        "only": {"choices": list(MINUTES), "help": "take one step"},
        "dry-run": dry_run,
    }
    run_benchmark(main, flags, {"only", "minutes", "dry_run"}, minutes=IN_ALL)
