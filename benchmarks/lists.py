"""Lists of trials: each row decides about one change, as trial.py does.

python -m benchmarks.lists LIST [NAME ...]

LIST is warmup, tricks, strategies or presets, a file of benchmarks/recipes; NAME is a row of it
(default: all). Interrupted trials continue, and finished ones are not repeated.
"""

import json
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from benchmarks.command import chosen, key_words, recipe, run_benchmark, save_results
from runs.errors import StoppedError
from runs.files import ROOT
from runs.sequential import Interval

LISTS = ("warmup", "tricks", "strategies", "presets")
ANSWERED = (0, 3, 4, 5)  # exit codes of trial.py


def main(options: Namespace, path: Path) -> None:
    content = recipe(options.list)
    rows = content["trials"]
    table = []
    results = {}
    for name in chosen("trial", options.names, rows):
        print(f"\n{name}", flush=True)
        (result,) = decided(arguments(content | rows[name]))
        results[name] = result
        row = {"": name, "result": result["line"]}
        for metric, known in result["beside"].items():
            _, mean, low, high = Interval(**known)
            row[metric] = f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"
        table.append(row | {"source: claim": rows[name].get("claim", "")})
    name = path.name.removeprefix("lists-list-")
    save_results(path.with_name(name), table, results=results)


def arguments(settings: dict[str, Any]) -> list[str]:
    """The arguments of trial.py for a row of a list, on top of what the list has for all rows."""
    return [
        *settings.get("words", []),
        *key_words(settings.get("keys", {})),
        *(f"--{name}={value}" for name, value in settings["options"].items()),
        *("--against", *key_words(settings.get("against", {}))),
        *("--both", *key_words(settings["both"])),
    ]


def decided(words: list[str]) -> list[dict[str, Any]]:
    """The results of a trial, which says on stderr how far it is. Raises StoppedError."""
    command = [sys.executable, str(ROOT / "trial.py"), *words, "--json"]
    process = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if process.returncode not in ANSWERED:
        raise StoppedError("the trial failed: the same command continues the list")
    return json.loads(process.stdout)


if __name__ == "__main__":
    which = {"choices": LISTS, "nargs": None, "help": "the list"}
    names = {"nargs": "*", "metavar": "NAME", "default": [], "help": "its rows"}
    run_benchmark(main, list=which, names=names)
