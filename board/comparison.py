"""Runs as the pages /runs and /compare show them: a row of a table, and curves."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from runs.schema import is_number

CURVE = (
    "step",
    "chars",
    "seconds",
    "loss.valid",
    "loss.valid_per_character",
    "loss.train",
    "excess",
    "accuracy.valid",
)
MAX_POINTS = 500  # of a curve
# keys in which repeats of a run may differ
SAME_EXPERIMENT = {"seed", "name", "logs", "tracking.also"}

Points = list[list[Any]]  # the number of the row, and its values of CURVE


def with_rows(curve: Points, rows: Sequence[Mapping[str, Any]]) -> Points:
    """A curve with more rows. A long one keeps evenly spaced rows, which depend only on their
    number, and the last."""
    points = [*curve]
    number = curve[-1][0] + 1 if curve else 0

    for row in rows:
        values = [row.get(name) for name in CURVE]
        points.append(
            [number, *(value if is_number(value) else None for value in values)]
        )
        number += 1

    stride = 1
    while number > MAX_POINTS * stride:
        stride *= 2

    return [point for point in points if point[0] % stride == 0 or point is points[-1]]


def group_of(configs: Mapping[str, Any]) -> str:
    """A hash that is the same for runs that differ only in their seed; the hash of the text is
    among the `configs`."""
    settings = {
        key: value for key, value in configs.items() if key not in SAME_EXPERIMENT
    }
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[
        :16
    ]


def summary(uuid: str, record: Mapping[str, Any], curve: Points) -> dict[str, Any]:
    """A run as a row of the table, and its curves as columns. Losses of runs with the same `unit`
    have the same unit: nats per token of the same text."""
    about = record["about"]
    configs = about["configs"]
    corpus = about["corpus"]
    tokens = configs.get("data.tokens", "characters")

    source, *words = about["command"].split(" ")
    preset = words.pop(0) if source == "preset" and words else ""
    changes = [word for word in words if not word.startswith("seed=")]

    if "changed_by_hand" in configs:
        changes.append("(changed by hand)")

    last = {}
    columns = {}

    if curve:
        for name, values in zip(("row", *CURVE), zip(*curve, strict=True), strict=True):
            last[name] = values[-1]
            if values.count(None) < len(values):
                columns[name] = values

    return about | {
        "uuid": uuid,
        "seed": configs.get("seed"),
        "group": group_of(configs | corpus),
        "preset": preset,
        "changes": " ".join(changes),
        "text": corpus["name"],
        "tokens": tokens,
        "unit": f"{corpus['sha256']} {tokens}",
        "state": record["status"],
        "hidden": record["hidden"],
        "last": last,
        "curve": columns,
    }
