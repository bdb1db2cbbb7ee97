"""Common parts of the benchmark commands: options, presets, machine facts, and the files of the
results."""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
import yaml

from configs.command_line.program import OneLineParser, run_main
from configs.command_line.scripts import number, run_script
from configs.devices import best_device
from configs.keys import ConfigError
from runs.files import ROOT, write_json
from runs.hardware import processor
from training import tracking

LONGEST_NAME = 200  # characters of a file name; file systems allow 255 with the suffix
RECIPES = ROOT / "benchmarks" / "recipes"
RESULTS = ROOT / "benchmarks" / "results"
Table = Sequence[Mapping[str, str]]  # rows: heading -> cell
OPTIONS = {
    "seeds": "runs per variant, each with its own seed",
    "seconds": "training time per run",
    "repeats": "rounds; each measures every candidate once",
    "minutes": "minutes in all",
    "megabytes": "size of the text",
    "kills": "runs to kill and resume",
}


def run_benchmark(
    main: Callable[[argparse.Namespace, Path], int | None],
    unnamed: Collection[str] = (),
    **extra: Any,
) -> NoReturn:
    """Call a benchmark's `main` with its options and the path of its results, and exit.

    The help is the module's docstring. `extra` has the options: the default of one of OPTIONS, or
    argparse's arguments, which make a positional option if they have `nargs`. Options in `unnamed`
    do not change the name of the results.
    """
    module = sys.modules["__main__"]
    parser = OneLineParser(
        description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    for name, option in extra.items():
        arguments = option
        if not isinstance(option, dict):
            text = f"{OPTIONS[name]} (default: {option:,g})"
            kind = number(int, 1) if isinstance(option, int) else number(float, 0.01)
            arguments = {"type": kind, "default": option, "metavar": "N", "help": text}
        prefix = "" if "nargs" in arguments else "--"
        parser.add_argument(prefix + name.replace("_", "-"), **arguments)

    def run(options: argparse.Namespace) -> int | None:
        tracking.be_quiet()
        changed = {}
        for name, value in vars(options).items():
            if value != parser.get_default(name) and name not in unnamed:
                changed[name] = value
        return main(options, results_path(Path(module.__file__ or "").stem, changed))

    run_main(lambda words: run_script(parser, words, run, "requirements-bench.txt"))


def results_path(name: str, changed: Mapping[str, Any] | None = None) -> Path:
    """`benchmarks/results/<machine>/<name>`, the path of a benchmark's results without a suffix.

    Options that differ from their default become part of the name, so that a short try does not
    overwrite a full measurement: `warmup --seeds 1` writes `warmup-seeds-1.json`.
    """
    words = [name]
    for key, value in (changed or {}).items():
        words.append(key)
        if value is not True:
            words.append(f"{value:g}" if isinstance(value, float) else str(value))

    file = "-".join(map(_slug, words))
    if len(file) > LONGEST_NAME:  # a checksum keeps names with the same beginning apart
        file = f"{file[: LONGEST_NAME - 9]}-{zlib.crc32(file.encode()):08x}"
    return RESULTS / _slug(_machine_name()) / file


def save_results(path: Path, table: Table, **content: Any) -> None:
    """Print a benchmark's table and write it as `path`.json, with the machine facts and the data
    behind it.

    benchmarks/page.py copies the table into the pages of docs/.
    """
    print("\n" + markdown(table), flush=True)
    write_json(
        path.with_suffix(".json"),
        {"machine": machine(), "table": table, **content},
        indent=1,
    )


def markdown(table: Table) -> str:
    """A table as Markdown. Its columns are those of all rows; a row without one of them has an
    empty cell there."""
    headings = list(dict.fromkeys(chain(*table)))
    lines = [headings, ["---"] * len(headings)]
    for row in table:
        lines.append([row.get(heading, "") for heading in headings])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def in_minutes(seconds: float) -> str:
    n = round(seconds / 60)
    return "less than a minute" if n == 0 else f"about {n} minute{'s' * (n > 1)}"


def chosen(what: str, names: list[str], known: Collection[str]) -> list[str]:
    """The names on the command line; all known ones if there are none. Raises ConfigError."""
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, 3) or known
            reason = f"unknown {what} {name!r}"
            raise ConfigError(f"{reason}: choose from {', '.join(near)}")
    return names or list(known)


def device_preset() -> str:
    """The preset for the best device of this machine."""
    return "gpu" if best_device() == "cuda" else "quick"


def recipe(name: str) -> dict[str, Any]:
    return yaml.safe_load((RECIPES / f"{name}.yaml").read_text())


def key_words(keys: Mapping[str, Any]) -> list[str]:
    return [
        f"{key}={value if isinstance(value, str) else json.dumps(value)}"
        for key, value in keys.items()
    ]


def machine() -> dict[str, str]:
    """The facts that every result records: machine, versions, threads, commit and date."""
    return {
        "machine": _machine_name(),
        "processor": processor(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "threads": str(torch.get_num_threads()),
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d"),
    }


def commit() -> str:
    """The commit that is checked out, with a + if code has changed since; outside of git a checksum
    of the code."""

    def git(*words: str) -> str:
        return subprocess.check_output(
            ["git", "-C", ROOT, *words], text=True, stderr=subprocess.DEVNULL
        ).strip()

    try:
        return git("rev-parse", "--short", "HEAD") + "+" * bool(
            git("status", "--porcelain", "*.py", "*.yaml")
        )
    except (OSError, subprocess.CalledProcessError):
        paths = [
            *ROOT.glob("*.py"),
            *ROOT.glob("[a-z]*/**/*.py"),
            *ROOT.glob("[a-z]*/**/*.yaml"),
        ]
        others = {"cache", "logs", "node_modules"}
        own = sorted(
            path for path in paths if others.isdisjoint(path.relative_to(ROOT).parts)
        )
        return f"files-{zlib.crc32(b''.join(path.read_bytes() for path in own)):08x}"


def _machine_name() -> str:
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    n = (
        len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count()
    )
    return f"{processor()}, {n} core{'s' * (n != 1)}"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-")
