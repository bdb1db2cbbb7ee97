"""Trials as the page /compare shows them."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from runs.schema import RunFolderError, read_object

MOST = 12
POINT = [(float, None)]  # pairs, mean, low, high
TRIAL = {
    "by": str,
    "equal": str,
    "base": str,
    "smallest": float,
    "intervals": {str: [POINT]},
}


def trials(folder: Path) -> list[dict[str, Any]]:
    """The last trials of `trial.py` in a folder, the newest first. Those without a whole pair, and
    damaged ones, are left out."""
    paths = sorted(folder.glob("*/trial.json"), key=lambda path: path.stat().st_mtime)
    newest = []
    for path in reversed(paths[-MOST:]):
        with suppress(RunFolderError):
            content = read_object(path, TRIAL)
            newest.append({key: content[key] for key in TRIAL})
    return newest
