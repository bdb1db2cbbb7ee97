"""What a result was measured on."""

import argparse
import os
import platform
import re
import subprocess
import time
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, str]:
    """The machine in words, the versions, the commit and the date, as they stand in every result."""
    return {
        "machine": _words(),
        "processor": _processor(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "threads": str(torch.get_num_threads()),
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d"),
    }


def results_folder() -> Path:
    """`benchmarks/results/<machine>/`, made where it is not there yet."""
    folder = RESULTS / re.sub(r"[^a-z0-9]+", "-", _words().lower()).strip("-")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def results_name(name: str, parser: argparse.ArgumentParser, options: argparse.Namespace) -> str:
    """What a benchmark's files are called: what is not measured in full takes no place of what is.

    Options that are not as they are by themselves are part of it: `warmup --seeds 1` writes `warmup-seeds-1.json`.
    """
    changed = {key: value for key, value in vars(options).items() if value != parser.get_default(key)}
    values = {key: f"{value:g}" if isinstance(value, float) else value for key, value in changed.items()}
    words = [name, *(key if value is True else f"{key} {value}" for key, value in values.items())]
    return "-".join(re.sub(r"[^a-z0-9._]+", "-", word.lower()).strip("-") for word in words)


def commit() -> str:
    """The commit that is checked out, with a + where files were changed since; `unknown` outside of git."""
    git = ("git", "-C", str(ROOT))
    try:
        name = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
        status = [*git, "status", "--porcelain", "--", ".", ":!benchmarks/results"]
        changed = subprocess.run(status, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return name.stdout.strip() + "+" * bool(changed.stdout.strip())


def _words() -> str:
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    n = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{_processor()}, {n} core{'s' * (n != 1)}"


def _processor() -> str:
    try:
        found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    name = found[1] if found else platform.processor() or platform.machine()
    return re.sub(r"\((R|TM)\)", "", name).strip()
