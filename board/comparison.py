"""Runs as the page /compare shows them: a row of its table, and a curve."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from runs.schema import is_number

CURVE = ("step", "chars", "seconds", "loss.valid")
MAX_POINTS = 2_000  # of a curve; a longer one loses every second point
SAME_EXPERIMENT = {"seed", "name", "logs", "changed_by_hand"}  # keys in which repeats of a run may differ

Points = list[list[Any]]


def extended(curve: Points, rows: Sequence[Mapping[str, Any]]) -> Points:
    """A curve with the points of further rows."""
    longer = curve + [[row.get(name) for name in CURVE] for row in rows]
    while len(longer) > MAX_POINTS:
        longer = [*longer[:-1:2], longer[-1]]
    return longer


def group_of(configs: Mapping[str, Any]) -> str:
    """A hash that is the same for runs that differ only in their seed."""
    settings = {key: value for key, value in configs.items() if key not in SAME_EXPERIMENT}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def summary(uuid: str, record: Mapping[str, Any], curve: Points) -> dict[str, Any]:
    """A run as a row of the table, and its curve as columns."""
    source, *words = record["comment"].split(" ")
    preset = words.pop(0) if source == "preset" and words else ""
    columns = {name: [point[i] for point in curve] for i, name in enumerate(CURVE)}
    last = {name: values[-1] if values else None for name, values in columns.items()}
    return {
        "uuid": uuid,
        "name": record["name"],
        "preset": preset,
        "changes": " ".join(word for word in words if not word.startswith("seed=")),
        "loss.valid": last["loss.valid"],
        "best": record["best"],
        "seconds": last["seconds"],
        "characters": last["chars"],
        "seed": record["seed"],
        "state": record["status"],
        "began": record["began"],
        "group": record["group"],
        "references": record["references"],
        "curve": columns,
    }


def best_of(best: float | None, rows: Sequence[Mapping[str, Any]]) -> float | None:
    """The lowest validation loss so far."""
    losses = [row["loss.valid"] for row in rows if is_number(row.get("loss.valid"))]
    return min(losses if best is None else [best, *losses], default=None)
