"""Stores what Folio's runs report: rows of metrics.jsonl, text of log.txt, a description and a status.

Each message says where its rows and its text begin in the run's files. The dashboard counts what it has and takes only
what follows. So a message that is sent twice, because its answer was lost, changes nothing, and a run that is imported
looks the same as one that was watched.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import Request
from labml_app import db
from labml_app.analyses import AnalysisManager
from labml_app.analyses.experiments import metrics, stdlogger

from board.store import Store
from runs.knobs import KnobError, knobs_of
from runs.schema import MISSING, STATUS, checked

NAMESPACE = "folio runs"
VISIBLE = {"loss.train", "loss.valid"}  # at first; the page's switches show the other series


def is_number(value: Any) -> bool:
    """Whether a value can be drawn: neither NaN nor infinite, nor an integer too long for a float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


ABOUT = {"name": str, "comment": str, "configs": dict, "explicit": [str], "began": is_number, "rates": [is_number]}
EMPTY = {"restart": False, "rows_from": 0, "rows": [], "log_from": 0, "log_to": 0, "log": ""}
MESSAGE = dict.fromkeys(("rows_from", "log_from", "log_to"), int) | {
    "restart": bool,
    "rows": [{"step": is_number}],
    "log": str,
    "about": (ABOUT, MISSING),
    "status": (STATUS | {"time": is_number}, MISSING),
}


class RunRecords:
    """Takes the messages of runs, and keeps the values that the user wants for their knobs."""

    def __init__(self, store: Store):
        self.store = store

    def receive(self, uuid: str, message: dict[str, Any]) -> dict[str, Any]:
        """Store one message of a run. Returns how much of the run is stored, and the wanted knobs.

        Raises ValueError if the message has the wrong form.
        """
        message = checked(EMPTY | message, MESSAGE, "the message")
        record = self._record(uuid) or {"rates": [], "knobs": None, "status": "in progress", "rows": 0, "log": 0}
        if message["restart"]:
            record |= {"rows": 0, "log": 0}
            AnalysisManager.delete_run(uuid)
            stdlogger.StdLoggerIndex.delete(uuid)
        run = db.run.get(uuid) or _new_run(uuid)
        if "about" in message:
            record |= _describe(run, message["about"], record)
        if message["rows"] and message["rows_from"] == record["rows"]:
            _track(uuid, message["rows"])
            if record["rows"] == 0:
                _choose_visible(uuid)
            record["rows"] += len(message["rows"])
        if message["log"] and message["log_from"] == record["log"]:
            stdlogger.update_std_logger(uuid, message["log"])
            record["log"] = message["log_to"]
        status = message.get("status", {})
        record["status"] = status.get("status", record["status"])
        run.status.load().update_time_status({"status": status})
        self.store.put(NAMESPACE, uuid, json.dumps(record))
        return {"rows": record["rows"], "log": record["log"], "knobs": record["knobs"]}

    def set_knobs(self, uuid: str, values: dict[str, Any]) -> dict[str, Any]:
        """Keep the wanted values of a run's knobs until the run's next message. Raises KnobError."""
        record = self._record(uuid)
        if record is None:
            raise KnobError(f"the dashboard has no run {uuid}")
        if record["status"] != "in progress":
            raise KnobError(f"this run has ended ({record['status']}), so its knobs have no effect")
        record["knobs"] = knobs_of((record["knobs"] or {}) | values, record["rates"]).as_dict()
        self.store.put(NAMESPACE, uuid, json.dumps(record))
        return {"knobs": record["knobs"]}

    def _record(self, uuid: str) -> dict[str, Any] | None:
        text = self.store.get(NAMESPACE, uuid)
        # A run that was deleted on the page starts from nothing when it reports again.
        return json.loads(text) if text is not None and db.run.get(uuid) is not None else None


def _new_run(uuid: str) -> Any:
    project = db.project.get_project("")
    if project.runs.pop(uuid, None) is not None:
        project.save()
    request = Request({"type": "http", "client": ("127.0.0.1", 0)})  # labml-app takes only the address from it
    run = db.run.get_or_create(request, uuid, rank=0, world_size=0, main_rank=0, labml_token="")
    run.owner = db.user.get_or_create_user("local", is_local_user=True).email  # the page deletes the owner's runs
    return run


def _track(uuid: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows to the series. Skips text and null values (numbers that were not finite)."""
    series: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        for name, value in row.items():
            if name != "step" and is_number(value):
                line = series.setdefault(name, {"step": [], "value": []})
                line["step"].append(row["step"])
                line["value"].append(value)
    AnalysisManager.track(uuid, series)
    # labml-app averages neighboring points. The last one must stay exact, because the page shows it as a number.
    model = metrics.MetricsIndex.get(uuid).load()
    for name, line in series.items():
        track = model.tracking[name]
        track["step"][-1], track["value"][-1] = line["step"][-1], line["value"][-1]
    model.save()


def _choose_visible(uuid: str) -> None:
    names = sorted(metrics.MetricsIndex.get(uuid).load().indicators)
    preferences = metrics.MetricsPreferencesIndex.get(uuid).load()
    preferences.update_preferences({"series_preferences": [1 if name in VISIBLE else -1 for name in names]})
    preferences.save()


def _describe(run: Any, about: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
    """Set a run's name, comment, start time and configs. Returns what the record keeps of them."""
    run.start_time = about["began"]
    for name in ("name", "comment"):
        if getattr(run, name) in ("", record.get(name)):  # else the user has changed it on the page
            setattr(run, name, about[name])
    shown = {
        name: {
            "name": name,
            "type": type(value).__name__,
            "value": _shown(value),
            "computed": _shown(value),
            "order": order,
            "options": [],
            "is_hyperparam": False,
            "is_meta": False,
            "is_explicitly_specified": name in about["explicit"],
        }
        for order, (name, value) in enumerate(about["configs"].items())
    }
    run.update_run({"computer": "this-machine", "python_file": "experiment.py", "configs": shown})
    return {key: about[key] for key in ("name", "comment", "rates")}


def _shown(value: Any) -> Any:
    """A config's value as the page shows it."""
    if isinstance(value, dict | list):
        return json.dumps(value)
    return "none" if value is None else value
