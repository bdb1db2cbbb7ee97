"""Stores what Folio's runs report: pieces of their growing files, a description and a status.

Each piece says where in its file it begins, and the dashboard takes only what it does not have. A message that is sent
twice changes nothing, and an imported run looks the same as one that was watched.
"""

import contextlib
import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from labml_app import db

from board import labml_run
from board.comparison import best_of, group_of, summary, with_rows
from board.revisions import COMPARE, LIST, Revisions
from board.store import Store
from runs.knobs import KnobError, Knobs, knobs_of
from runs.run_folder import RunFolder, RunFolderError
from runs.schema import DELIVERED, LOG, METRICS, MISSING, STATUS, USAGE, checked, is_size

RECORDS, CURVES = "folio runs", "folio curves"  # namespaces
LISTED = {"status", "name", "comment"}  # entries that the list of runs shows
SECONDS_OF_SILENCE = 4.0  # after which the dashboard checks whether a run's process exists; a run reports every two
NOT_COMPARED = {USAGE, LOG, "knobs", "current"}  # entries that the page /compare does not show
NEW: dict[str, Any] = {  # the record of a run
    "status": "in progress",
    **dict.fromkeys(DELIVERED, 0),  # the bytes of each file that are stored
    **dict.fromkeys(("name", "command", "comment", "folder", "group"), ""),
    **dict.fromkeys(("knobs", "current", "seed", "best")),
    "rates": (),
    "references": {},
    "began": 0.0,
    "is_changed_by_hand": False,
}
ABOUT = dict.fromkeys(("name", "command", "comment", "folder"), str) | {
    "configs": dict,
    "explicit": [str],
    "began": float,
    "rates": [float],
    "knobs": (dict, None),
    "references": {str: float},
}
MESSAGE = {
    "restart": (bool, MISSING),
    "pieces": {name: {"from": is_size, "to": is_size, "text": str} for name in DELIVERED},
    "about": (ABOUT, MISSING),
    "heard": (float, MISSING),
    "status": (STATUS | {"time": float}, MISSING),
}
ROWS = {"rows": [{"step": float}]}


class RunRecords:
    """Takes the messages of runs, keeps the values that the user wants for their knobs, and notices dead runs.

    A run is dead if it is silent and its folder is not locked.
    """

    def __init__(self, store: Store, revisions: Revisions):
        self.store = store
        self.revisions = revisions
        self.restart()

    def restart(self) -> None:
        """Begin with what the database has: at first, and after it was replaced."""
        # Runs in progress, and the time of their last message by this process's clock.
        self._heard = {uuid: 0.0 for uuid, record in self._all().items() if record["status"] == "in progress"}

    def receive(self, uuid: str, message: dict[str, Any]) -> dict[str, Any]:
        """Store one message of a run. Returns how much of the run is stored, and the wanted knobs. Raises
        ValueError."""
        checked(message, MESSAGE, "the message")
        stored = self._record(uuid)
        record = NEW | (stored or {})
        if message.get("restart") or not any(record[name] for name in DELIVERED):  # as after an earlier version
            record |= dict.fromkeys(DELIVERED, 0) | {"best": None}
            labml_run.clear(uuid)
            self.store.delete(CURVES, uuid)
        run, references = labml_run.get_or_create(uuid), record["references"]
        if "about" in message:
            record |= self._described(run, message["about"], record)
        pieces = message["pieces"]
        new = [name for name in DELIVERED if pieces[name]["from"] == record[name]]
        texts = {name: pieces[name]["text"] if name in new else "" for name in DELIVERED}
        self._add_rows(uuid, record, texts, record["references"].keys() - references.keys())
        if texts[LOG]:
            labml_run.add_log(uuid, texts[LOG])
        record |= {name: pieces[name]["to"] for name in new}
        status, heard = message.get("status", {}), message.get("heard")
        record["status"] = status.get("status", record["status"])
        labml_run.set_status(run, status, heard, is_new=stored is None)
        is_recent = heard is None or time.time() - heard < SECONDS_OF_SILENCE
        self._heard[uuid] = time.monotonic() if is_recent else 0.0
        self._put(uuid, record, stored)
        self.notice_dead()  # if this run is imported, its process may have ended
        return {"stored": {name: record[name] for name in DELIVERED}, "knobs": record["knobs"]}

    def _described(self, run: Any, about: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
        """Describe a run to labml-app. Returns what the record keeps of it."""
        labml_run.describe(run, about, record)
        kept = {key: about[key] for key in ("name", "command", "comment", "rates", "folder", "references", "began")}
        return kept | {
            "current": about["knobs"],
            "group": group_of(about["configs"]),
            "seed": about["configs"].get("seed"),
            "is_changed_by_hand": "changed_by_hand" in about["configs"],
        }

    def _add_rows(self, uuid: str, record: dict[str, Any], texts: Mapping[str, str], new: Iterable[str]) -> None:
        """Add the rows in the new pieces of files. `new` are the names of reference losses that earlier rows do not
        have."""
        rows, usage = (_rows(name, texts[name]) for name in (METRICS, USAGE))
        curve = self._curve(uuid)
        references = {f"{labml_run.REFERENCE}{name}": loss for name, loss in record["references"].items()}
        missing = {f"{labml_run.REFERENCE}{name}": record["references"][name] for name in new}
        hardware = [
            {"step": row["step"]} | {f"{labml_run.HARDWARE}{name}": row[name] for name in row.keys() - {"step", "time"}}
            for row in usage
        ]
        earlier = [{"step": step} | missing for _, step, *_ in curve if missing]
        shown = [*earlier, *(row | references for row in rows), *hardware]
        if shown:
            labml_run.add_rows(uuid, shown)
        if rows:
            self.store.put(CURVES, uuid, json.dumps(with_rows(curve, rows)))
            record["best"] = best_of(record["best"], rows)

    def set_knobs(self, uuid: str, values: dict[str, Any]) -> dict[str, Any]:
        """Keep the wanted values of a run's knobs until the run's next message. Raises KnobError."""
        self._notice_if_dead(uuid)
        record = self._record(uuid)
        if record is None:
            raise KnobError(f"the dashboard has no run {uuid}")
        if record["status"] != "in progress":
            how = "is dead" if record["status"] == "dead" else f"has ended ({record['status']})"
            raise KnobError(f"this run {how}, so its knobs have no effect")
        wanted = knobs_of((record["knobs"] or {}) | values, record["rates"]).as_dict()
        self._put(uuid, record | {"knobs": wanted}, record)
        return {"knobs": wanted}

    def knobs(self, uuid: str) -> dict[str, Any]:
        """The state of a run and its knobs: the values in use, those requested, and the possible masking rates."""
        record = NEW | (self._record(uuid) or {"status": "unknown"})
        current = record["current"] or Knobs().as_dict()
        wanted = {"current": current, "requested": record["knobs"] or current, "rates": sorted(record["rates"])}
        return {"state": record["status"]} | wanted

    def summaries(self) -> list[dict[str, Any]]:
        """All runs for the page that compares them, each with its curve."""
        return [summary(uuid, record, self._curve(uuid)) for uuid, record in self._all().items()]

    def notice_dead(self) -> None:
        """Mark silent runs whose process has ended."""
        now = time.monotonic()
        for uuid in [uuid for uuid, heard in self._heard.items() if now - heard >= SECONDS_OF_SILENCE]:
            self._notice_if_dead(uuid)

    def _notice_if_dead(self, uuid: str) -> None:
        """Mark a run that is in progress although nobody holds the lock of its folder: its folder says how it ended, or
        it is dead."""
        record = self._record(uuid)
        if record is None or record["status"] != "in progress":
            self._heard.pop(uuid, None)
            return
        folder = RunFolder(Path(record["folder"]))
        if record["folder"] and folder.path.is_dir() and not folder.is_locked():
            status = "in progress"
            with contextlib.suppress(RunFolderError):
                status = folder.status()["status"]
            status = "dead" if status == "in progress" else status
            labml_run.mark(uuid, status)
            self._put(uuid, record | {"status": status}, record)

    def _put(self, uuid: str, record: Mapping[str, Any], before: Mapping[str, Any] | None) -> None:
        """Keep a record, and count what has changed."""
        changed = {key for key, value in record.items() if before is None or value != before.get(key)}
        if changed:
            self.store.put(RECORDS, uuid, json.dumps(record))
            pages = [LIST] * bool(changed & LISTED) + [COMPARE] * bool(changed - NOT_COMPARED)
            self.revisions.changed(uuid, *pages)

    def _record(self, uuid: str) -> dict[str, Any] | None:
        text = self.store.get(RECORDS, uuid)
        # A run that was deleted on the page starts from nothing when it reports again.
        return NEW | json.loads(text) if text is not None and db.run.get(uuid) is not None else None

    def _all(self) -> dict[str, dict[str, Any]]:
        records = {uuid: self._record(uuid) for uuid in self.store.keys(RECORDS)}
        for uuid in [uuid for uuid, record in records.items() if record is None]:  # deleted on the page
            self.store.delete(RECORDS, uuid)
            self.store.delete(CURVES, uuid)
        return {uuid: record for uuid, record in records.items() if record is not None}

    def _curve(self, uuid: str) -> list[list[Any]]:
        return json.loads(self.store.get(CURVES, uuid) or "[]")


def _rows(name: str, text: str) -> list[dict[str, Any]]:
    """The rows in a piece of a file. Raises ValueError if one is damaged."""
    try:
        rows = [json.loads(line, parse_constant=str) for line in text.split("\n")[:-1]]  # NaN is not JSON: as text
    except ValueError as error:
        raise ValueError(f"{name} is damaged") from error
    return checked({"rows": rows}, ROWS, name)["rows"]
