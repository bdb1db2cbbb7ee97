"""A run in labml-app's own data: its description, series, log and status."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import Request
from labml_app import db
from labml_app.analyses import AnalysisManager
from labml_app.analyses.experiments import metrics, stdlogger
from labml_app.enums import RunEnums

from board.labml_messages import MAX_SERIES
from runs.schema import is_number

# labml-app leaves out further ones; its own limit is too high to have an effect
metrics.INDICATOR_LIMIT = MAX_SERIES


def get_or_create(uuid: str) -> Any:
    """labml-app's record of a run."""
    run = db.run.get(uuid)
    if run is not None:
        return run
    project = db.project.get_project("")
    if project.runs.pop(uuid, None) is not None:
        project.save()
    # labml-app takes only the address from it
    request = Request({"type": "http", "client": ("127.0.0.1", 0)})
    return db.run.get_or_create(
        request, uuid, rank=0, world_size=0, main_rank=0, labml_token=""
    )


def clear(uuid: str) -> None:
    """Delete the series and the log of a run."""
    AnalysisManager.delete_run(uuid)
    stdlogger.StdLoggerIndex.delete(uuid)


def delete(uuid: str) -> None:
    """Delete a run, as labml's page does."""
    project = db.project.get_project("")
    project.delete_runs(
        [uuid], db.user.get_or_create_user("local", is_local_user=True).email
    )


def describe(run: Any, about: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    """Set the name, comment, start time and configs of a run. `before` has the name and comment
    that it had."""
    run.start_time = about["began"]
    for name in ("name", "comment"):
        # else the user has changed it on labml's page
        if getattr(run, name) in ("", before.get(name)):
            setattr(run, name, about[name])

    configs = {}
    for name, value in about["configs"].items():
        shown = value if isinstance(value, str | int | float) else json.dumps(value)
        configs[name] = {
            "name": name,
            "value": shown,
            "computed": shown,
            "type": type(value).__name__,
            "is_explicitly_specified": name in about["explicit"],
        }

    run.update_run(
        {"computer": "this-machine", "python_file": "experiment.py", "configs": configs}
    )


def set_status(
    run: Any, status: Mapping[str, Any], heard: float | None, is_new: bool
) -> None:
    """Set the status of a run, and the time that labml's page shows as that of its last sign of
    life."""
    shown = run.status.load()
    before = 0.0 if is_new else shown.last_updated_time
    shown.update_time_status({"status": status})  # sets the time to now
    if heard is not None:
        shown.last_updated_time = max(before, min(shown.last_updated_time, heard))
        shown.save()


def mark(uuid: str, status: str) -> None:
    """Set the status of a run whose process ended without reporting it; the time of its last sign
    of life stays."""
    shown = db.run.get(uuid).status.load().run_status.load()
    shown.status = RunEnums.RUN_NOT_RESPONDING if status == "dead" else status
    shown.save()


def add_rows(uuid: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add the numbers in rows to the series of a run. Raises ValueError if there are too many
    series."""
    series = defaultdict(lambda: {"step": [], "value": []})
    for row in rows:
        for name, value in row.items():
            if name != "step" and is_number(value):
                series[name]["step"].append(row["step"])
                series[name]["value"].append(value)

    key = metrics.MetricsIndex.get(uuid)
    if len({*(key.load().indicators if key else ()), *series}) > MAX_SERIES:
        raise ValueError(f"more than {MAX_SERIES} series")
    AnalysisManager.track(uuid, series)
    # labml-app averages neighboring points. The last one must stay exact, because the page shows it
    # as a number.
    model = metrics.MetricsIndex.get(uuid).load()

    for name in series.keys() & model.tracking.keys():
        for part, numbers in series[name].items():
            model.tracking[name][part][-1] = numbers[-1]

    model.save()


def add_log(uuid: str, text: str) -> None:
    """Add text to the log of a run."""
    stdlogger.update_std_logger(uuid, text)
