"""The metrics of a trial's runs."""

from typing import NamedTuple

from runs.run_folder import RunFolder
from runs.schema import is_number

MEMORY = "memory"
TASKS = "tasks"


class Metric(NamedTuple):
    """The unit of a metric, and its direction."""

    unit: str
    more_is_better: bool


METRICS = {
    "loss.valid": Metric("nats", False),
    "excess": Metric("nats", False),
    "accuracy.valid": Metric("", True),
    "chars_per_second": Metric("characters per second", True),
    MEMORY: Metric("MB", False),
    TASKS: Metric("", True),
}


def last_row(run: RunFolder) -> dict[str, float]:
    """The metrics in the last row of a run."""
    row = run.metrics()[-1]
    return {name: row[name] for name in METRICS if is_number(row.get(name))}
