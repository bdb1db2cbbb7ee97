"""Stores what Folio's runs report: rows of metrics.jsonl, text of log.txt, a description and a status.

Each message says where its rows and its text begin in the run's files. The dashboard counts what it has and takes only
what follows. So a message that is sent twice, because its answer was lost, changes nothing, and a run that is imported
looks the same as one that was watched.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import Request

from board.store import Store
from runs.knobs import KnobError, knobs_of

NAMESPACE = "folio runs"
ENDED = ("completed", "crashed", "interrupted")
VISIBLE = {"loss.train", "loss.valid"}  # at first; the page's switches show the other series


class MessageError(ValueError):
    """A message of the wrong form."""


class RunRecords:
    """Takes the messages of runs, and keeps the values that the user wants for their knobs."""

    def __init__(self, store: Store):
        # labml-app reads the environment when it is imported, so not before the server has set it.
        from labml_app.analyses import AnalysisManager
        from labml_app.analyses.experiments import metrics, stdlogger
        from labml_app.db import project, run, user

        self.store = store
        self.run, self.project, self.user = run, project, user
        self.analyses, self.metrics, self.log = AnalysisManager, metrics, stdlogger

    def receive(self, uuid: str, message: Mapping[str, Any]) -> dict[str, Any]:
        """Store one message of a run. Returns how much of the run is stored, and the wanted knobs.

        If it raises MessageError, the caller rolls back what was stored so far.
        """
        rows, log = _rows(message.get("rows", [])), message.get("log", "")
        if not isinstance(log, str):
            raise MessageError("log must be a string")
        record = self._record(uuid)
        if record is None:
            record = {"rates": [], "knobs": None, "status": "", "rows": 0, "log": 0}
        if message.get("restart"):
            record |= {"rows": 0, "log": 0}
            self.analyses.delete_run(uuid)
            self.log.StdLoggerIndex.delete(uuid)
        run = self.run.get(uuid) or self._new_run(uuid)
        about = message.get("about")
        if isinstance(about, dict):
            record |= _describe(run, about, record)
        if rows and message.get("rows_from") == record["rows"]:
            self._track(uuid, rows)
            if record["rows"] == 0:
                self._choose_visible(uuid)
            record["rows"] += len(rows)
        log_to = message.get("log_to")
        if log and message.get("log_from") == record["log"] and isinstance(log_to, int):
            self.log.update_std_logger(uuid, log)
            record["log"] = log_to
        status = _status(message.get("status"))
        record["status"] = status.get("status", record["status"])
        run.status.load().update_time_status({"status": status})
        self.store.put(NAMESPACE, [(uuid, json.dumps(record))])
        return {"rows": record["rows"], "log": record["log"], "knobs": record["knobs"]}

    def set_knobs(self, uuid: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Keep the wanted values of a run's knobs until the run's next message. Raises KnobError."""
        record = self._record(uuid)
        if record is None:
            raise KnobError(f"the dashboard has no run {uuid}")
        if record["status"] in ENDED:
            raise KnobError(f"this run has ended ({record['status']}), so its knobs have no effect")
        record["knobs"] = knobs_of((record["knobs"] or {}) | dict(values), record["rates"]).as_dict()
        self.store.put(NAMESPACE, [(uuid, json.dumps(record))])
        return {"knobs": record["knobs"]}

    def _record(self, uuid: str) -> dict[str, Any] | None:
        text = self.store.get(NAMESPACE, uuid)
        # A run that was deleted on the page starts from nothing when it reports again.
        return json.loads(text) if text is not None and self.run.get(uuid) is not None else None

    def _new_run(self, uuid: str) -> Any:
        project = self.project.get_project("")
        if project.runs.pop(uuid, None) is not None:
            project.save()
        request = Request({"type": "http", "client": ("127.0.0.1", 0)})  # labml-app takes only the address from it
        run = self.run.get_or_create(request, uuid, rank=0, world_size=0, main_rank=0, labml_token="")
        run.owner = self.user.get_or_create_user("local", is_local_user=True).email  # the page deletes the owner's runs
        return run

    def _track(self, uuid: str, rows: Sequence[Mapping[str, float]]) -> None:
        series: dict[str, dict[str, list[float]]] = {}
        for row in rows:
            for name in row.keys() - {"step"}:
                line = series.setdefault(name, {"step": [], "value": []})
                line["step"].append(row["step"])
                line["value"].append(row[name])
        self.analyses.track(uuid, series)
        # labml-app averages neighboring points. The last one must stay exact, because the page shows it as a number.
        model = self.metrics.MetricsIndex.get(uuid).load()
        for name, line in series.items():
            track = model.tracking[name]
            track["step"][-1], track["value"][-1] = line["step"][-1], line["value"][-1]
        model.save()

    def _choose_visible(self, uuid: str) -> None:
        names = sorted(self.metrics.MetricsIndex.get(uuid).load().indicators)
        preferences = self.metrics.MetricsPreferencesIndex.get(uuid).load()
        preferences.update_preferences({"series_preferences": [1 if name in VISIBLE else -1 for name in names]})
        preferences.save()


def _is_number(value: Any) -> bool:
    """Whether a value can be drawn: neither NaN nor infinite, nor an integer too long for a float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _rows(rows: Any) -> list[dict[str, float]]:
    """The numbers in rows of metrics.jsonl. Other values are left out: null (it was not finite) and text."""
    if not isinstance(rows, list) or not all(isinstance(row, dict) and _is_number(row.get("step")) for row in rows):
        raise MessageError("rows must be a list of rows with a step")
    return [{str(name): value for name, value in row.items() if _is_number(value)} for row in rows]


def _status(status: Any) -> dict[str, Any]:
    """A run's status, checked; empty if the message has none."""
    if status is None:
        return {}
    if not isinstance(status, dict) or status.get("status") not in ("in progress", *ENDED):
        raise MessageError(f"status must be in progress, {', '.join(ENDED)}")
    time = status.get("time") if _is_number(status.get("time")) else 0
    return {"status": status["status"], "details": str(status.get("details", "")), "time": time}


def _describe(run: Any, about: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
    """Set a run's name, comment, start time and configs. Returns what the record keeps of them. Raises MessageError."""
    configs, explicit, rates = about.get("configs"), about.get("explicit"), about.get("rates")
    if not isinstance(configs, dict) or not isinstance(explicit, list) or not _is_number(about.get("began")):
        raise MessageError("about must have configs, explicit and began")
    if not isinstance(rates, list) or not all(_is_number(rate) for rate in rates):
        raise MessageError("rates must be a list of numbers")
    run.start_time = about["began"]
    texts = {name: str(about.get(name, "")) for name in ("name", "comment")}
    for name, text in texts.items():
        if getattr(run, name) in ("", record.get(name)):  # else the user has changed it on the page
            setattr(run, name, text)
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
            "is_explicitly_specified": name in explicit,
        }
        for order, (name, value) in enumerate(configs.items())
    }
    run.update_run({"computer": "this-machine", "python_file": "experiment.py", "configs": shown})
    return texts | {"rates": rates}


def _shown(value: Any) -> Any:
    """A config's value as the page shows it."""
    if isinstance(value, dict | list):
        return json.dumps(value)
    return "none" if value is None else value
