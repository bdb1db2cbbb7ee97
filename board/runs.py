"""What the dashboard has of Folio's runs.

A run sends the rows of its metrics.jsonl and the text of its log as they are in its folder, with where they stand
there. The dashboard counts what it has, and takes only what comes next: a message that is sent twice, because its
answer was lost, changes nothing, and a run that is brought in afterwards is the same as one that was watched.
"""

import importlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import Request

from board.store import Store
from runs.knobs import KnobError, knobs_of

NAMESPACE = "folio runs"
COMPUTER = "this-machine"
ENDED = ("completed", "crashed", "interrupted")
NOT_SERIES = {"step"}
SHOWN = {"loss.train", "loss.valid"}  # at first; the page's switches show the others


class MessageError(ValueError):
    """A message that is not as runs send them."""


class Runs:
    """Takes what runs tell, and keeps what is wanted of their knobs."""

    def __init__(self, store: Store):
        self.store = store
        self.run = importlib.import_module("labml_app.db.run")
        self.project = importlib.import_module("labml_app.db.project")
        self.user = importlib.import_module("labml_app.db.user")
        self.analyses = importlib.import_module("labml_app.analyses").AnalysisManager
        self.metrics = importlib.import_module("labml_app.analyses.experiments.metrics")
        self.log = importlib.import_module("labml_app.analyses.experiments.stdlogger")

    def tell(self, request: Request, uuid: str, message: Mapping[str, Any]) -> dict[str, Any]:
        """Take one message of a run, or nothing of it. Raises MessageError."""
        with self.store.together():
            return self._tell(request, uuid, message)

    def _tell(self, request: Request, uuid: str, message: Mapping[str, Any]) -> dict[str, Any]:
        rows, log = _rows(message.get("rows", [])), message.get("log", "")
        if not isinstance(log, str):
            raise MessageError("log must be a text")
        record = self._record(uuid)
        if record is None:
            record = {"rates": [], "knobs": None, "status": "", "rows": 0, "log": 0}
        if message.get("restart"):
            record |= {"rows": 0, "log": 0}
            self._forget(uuid)
        run = self.run.get(uuid) or self._new_run(request, uuid)
        about = message.get("about")
        if isinstance(about, dict):
            record |= _about(run, about, record)
        if rows and message.get("rows_from") == record["rows"]:
            self._track(uuid, rows)
            if record["rows"] == 0:
                self._choose_shown(uuid)
            record["rows"] += len(rows)
        log_to = message.get("log_to")
        if log and message.get("log_from") == record["log"] and isinstance(log_to, int):
            self.log.update_std_logger(uuid, log)
            record["log"] = log_to
        status = _status(message.get("status"))
        record["status"] = status.get("status", record["status"])
        run.status.load().update_time_status({"status": status})
        self.store.put(NAMESPACE, [(uuid, json.dumps(record))])
        return {"rows": record["rows"], "log": record["log"], "knobs": record["knobs"], "url": f"/run/{uuid}"}

    def turn(self, uuid: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Remember how a run's knobs are wanted, until it asks. Raises KnobError."""
        record = self._record(uuid)
        if record is None:
            raise KnobError(f"the dashboard knows no run {uuid}")
        if record["status"] in ENDED:
            raise KnobError(f"this run has ended ({record['status']}): its knobs turn nothing any more")
        record["knobs"] = knobs_of((record["knobs"] or {}) | dict(values), record["rates"]).as_dict()
        self.store.put(NAMESPACE, [(uuid, json.dumps(record))])
        return {"knobs": record["knobs"]}

    def _choose_shown(self, uuid: str) -> None:
        names = sorted(self.metrics.MetricsIndex.get(uuid).load().indicators)
        preferences = self.metrics.MetricsPreferencesIndex.get(uuid).load()
        preferences.update_preferences({"series_preferences": [1 if name in SHOWN else -1 for name in names]})
        preferences.save()

    def _record(self, uuid: str) -> dict[str, Any] | None:
        text = self.store.get(NAMESPACE, uuid)
        # A run that was deleted on the page begins anew when it is told of again.
        return json.loads(text) if text is not None and self.run.get(uuid) is not None else None

    def _forget(self, uuid: str) -> None:
        """Drop the curves and the log that are there of a run."""
        self.analyses.delete_run(uuid)
        self.log.StdLoggerIndex.delete(uuid)

    def _new_run(self, request: Request, uuid: str) -> Any:
        project = self.project.get_project("")
        if project.runs.pop(uuid, None) is not None:
            project.save()
        run = self.run.get_or_create(request, uuid, rank=0, world_size=0, main_rank=0, labml_token="")
        run.owner = self.user.get_or_create_user("local", is_local_user=True).email  # else it could not be deleted
        return run

    def _track(self, uuid: str, rows: Sequence[Mapping[str, float]]) -> None:
        series: dict[str, dict[str, list[float]]] = {}
        for row in rows:
            for name, value in row.items():
                if name not in NOT_SERIES:
                    line = series.setdefault(name, {"step": [], "value": []})
                    line["step"].append(row["step"])
                    line["value"].append(value)
        self.analyses.track(uuid, series)
        # labml-app averages neighbouring points; the last one is what a reader looks for, so it stays as it is.
        model = self.metrics.MetricsIndex.get(uuid).load()
        for name, line in series.items():
            track = model.tracking[name]
            track["step"][-1], track["value"][-1] = line["step"][-1], line["value"][-1]
        model.save()


def _rows(rows: Any) -> list[dict[str, float]]:
    """The numbers of rows of metrics.jsonl; what is null there, because it was not a number, is left out."""
    if not isinstance(rows, list) or not all(isinstance(row, dict) and _is_number(row.get("step")) for row in rows):
        raise MessageError("rows must be a list of rows with a step")
    return [{str(name): value for name, value in row.items() if _is_number(value)} for row in rows]


def _status(status: Any) -> dict[str, Any]:
    """How a run is, checked; empty where the message does not say."""
    if status is None:
        return {}
    if not isinstance(status, dict) or status.get("status") not in ("in progress", *ENDED):
        raise MessageError("status must be in progress, or how the run ended")
    time = status.get("time")
    return {
        "status": status["status"],
        "details": str(status.get("details", "")),
        "time": time if _is_number(time) else 0,
    }


def _is_number(value: Any) -> bool:
    """Whether a value is a number that can be drawn: neither NaN nor infinite, nor an integer too long for a float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _about(run: Any, about: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
    """Set a run's name, comment, time and configs; returns what is to be remembered of them."""
    configs, explicit = about.get("configs"), about.get("explicit")
    rates, began = about.get("rates"), about.get("began")
    if not isinstance(configs, dict) or not isinstance(explicit, list) or not _is_number(began):
        raise MessageError("about must have configs, explicit and began")
    if not isinstance(rates, list) or not all(_is_number(rate) for rate in rates):
        raise MessageError("rates must be a list of numbers")
    run.start_time = began
    told = {name: str(about.get(name, "")) for name in ("name", "comment")}
    for name, value in told.items():
        if getattr(run, name) in ("", record.get(name)):  # else someone has changed it on the page
            setattr(run, name, value)
    run.update_run(
        {
            "computer": COMPUTER,
            "python_file": "experiment.py",
            "configs": {
                name: {
                    "name": name,
                    "type": type(value).__name__,
                    "value": _shown(value),
                    "computed": _shown(value),
                    "order": order,
                    "options": [],
                    "is_hyperparam": False,
                    "is_meta": False,
                    "is_explicitly_specified": name in explicit,
                }
                for order, (name, value) in enumerate(configs.items())
            },
        }
    )
    return told | {"rates": rates}


def _shown(value: Any) -> Any:
    """A config's value as the page shows it."""
    if isinstance(value, dict | list):
        return json.dumps(value)
    return "none" if value is None else value
