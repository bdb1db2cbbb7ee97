"""Stores what Folio's runs report: pieces of their growing files, a description and a status.

Each piece says where in its file it begins, and the dashboard takes only what it does not have. A
message that is sent twice changes nothing, and an imported run looks the same as one that was
watched.
"""

import contextlib
import json
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from board import labml_run
from board.comparison import summary, with_rows
from board.labml_messages import is_name
from board.store import Store
from runs.errors import InputError
from runs.files import read_piece
from runs.knobs import Knobs, knobs_of
from runs.run_folder import RunFolder, RunFolderError
from runs.schema import (
    DELIVERED,
    LOG,
    METRICS,
    MISSING,
    PLANNED,
    SHOWN_CONFIG,
    STATUS,
    checked,
    is_size,
    matches,
)

LABMLS = "index RunIndex"  # the namespace of labml-app's runs, which its page deletes
# the namespace; runs that an earlier version stored come back with an import
RECORDS = "folio runs of 9"
# after which the dashboard checks whether a run's process exists; a run reports every two
SECONDS_OF_SILENCE = 4.0
BYTES_PER_ANSWER = 2**22  # of each file of a run
MAX_CONFIGS = 2**18  # characters; lists of runs send them with each refresh
EMPTY = dict.fromkeys(DELIVERED, 0)  # bytes of each file
# a record, with "about"
NEW: dict[str, Any] = {
    "stored": EMPTY,
    "curve": [],
    "status": "in progress",
    "knobs": None,
    "hidden": False,
}
# keys that the page draws
DRAWN = {name: (kind, MISSING) for name, kind in SHOWN_CONFIG.items()}
ABOUT = {
    "name": is_name,
    "command": is_name,
    "comment": is_name,
    "folder": is_name,
    "configs": lambda value: (
        matches(value, DRAWN) and len(json.dumps(value)) <= MAX_CONFIGS
    ),
    "explicit": [str],
    "began": float,
    "started": (float, MISSING),
    "knobs": (dict, None),
    "references": {str: float},
    "planned": (PLANNED, MISSING),  # runs of earlier versions have none
    "corpus": {"name": is_name, "sha256": is_name},
}
MESSAGE = {
    "restart": (bool, MISSING),
    "pieces": {
        name: {"from": is_size, "to": is_size, "text": str} for name in DELIVERED
    },
    "about": (ABOUT, MISSING),
    "heard": (float, MISSING),
    "status": (STATUS | {"time": float}, MISSING),
}
ROWS = {"rows": [lambda row: matches(row, {"step": float}) and all(map(is_name, row))]}


class UnknownRunError(InputError):
    """No run of the dashboard matches, or several do. The message is one line for the user."""


class RunRecords:
    """Takes the messages of runs, keeps the values that the user wants for their knobs, and notices
    dead runs.

    A run is dead if it is silent and its folder is not locked.
    """

    def __init__(self, store: Store):
        self.store = store
        self.restart()

    def restart(self) -> None:
        """Begin with what the database has: at first, and after it was replaced."""
        self._start = secrets.token_hex(4)
        self._n_changes = 0
        # The time of the last message of each run that may be in progress, by this process's clock.
        self._heard = dict.fromkeys(self._all(), 0.0)

    @property
    def revision(self) -> str:
        """Differs after a change of a run, and after a restart: an open page asks cheaply whether
        it has to load."""
        return f"{self._start}-{self._n_changes}-{len(self.store.keys(LABMLS))}"

    def receive(self, uuid: str, message: dict[str, Any]) -> dict[str, Any]:
        """Store one message of a run. Returns how much of the run is stored, and the wanted knobs.
        Raises ValueError."""
        checked(message, MESSAGE, "the message")
        rows = _rows(message["pieces"][METRICS]["text"])
        before = self.record(uuid)
        about_before = before["about"] if before else {}
        about = message.get("about", about_before)

        if not about:  # the run was deleted here: the answer makes it describe itself
            return {"stored": EMPTY, "knobs": None}
        record = (before or NEW) | {"about": about}
        is_resumed = about_before.get("started") != about.get("started")

        if message.get("restart") or before is None or is_resumed:
            record |= {"stored": EMPTY, "curve": []}
            labml_run.clear(uuid)

        run = labml_run.get_or_create(uuid)
        if "about" in message:
            labml_run.describe(run, about, about_before)

        stored = dict(record["stored"])
        for name, piece in message["pieces"].items():
            if piece["from"] != stored[name]:
                continue  # the dashboard has it already, or misses what is before
            stored[name] = piece["to"]
            if name == METRICS and rows:
                labml_run.add_rows(uuid, rows)
                record["curve"] = with_rows(record["curve"], rows)
            elif name == LOG and piece["text"]:
                labml_run.add_log(uuid, piece["text"])

        record["stored"] = stored

        status = message.get("status", {})
        record["status"] = status.get("status", record["status"])
        heard = message.get("heard")
        labml_run.set_status(run, status, heard, is_new=before is None)
        silence = 0.0 if heard is None else max(0.0, time.time() - heard)
        self._heard[uuid] = time.monotonic() - silence
        self._put(uuid, record, before)
        return {"stored": stored, "knobs": record["knobs"]}

    def set_knobs(self, uuid: str, message: dict[str, Any]) -> dict[str, Any]:
        """Keep the wanted values of a run's knobs; one that is not in `message` stays as it is.
        Raises InputError."""
        self._notice_if_dead(uuid)
        record = self.known(uuid)

        if record["status"] != "in progress":
            how = (
                "is dead"
                if record["status"] == "dead"
                else f"has ended ({record['status']})"
            )
            raise InputError(f"this run {how}, so its knobs have no effect")

        before = record["knobs"] or record["about"]["knobs"] or {}
        wanted = asdict(knobs_of(before | message))
        self._put(uuid, record | {"knobs": wanted}, record)
        return {"knobs": wanted}

    def hide(self, uuid: str, message: dict[str, Any]) -> dict[str, Any]:
        """Hide a run in the list, or show it again. Raises ValueError."""
        record = self.known(uuid)
        hidden = checked(message, {"hidden": bool}, "the message")["hidden"]
        self._put(uuid, record | {"hidden": hidden}, record)
        return {}

    def delete(self, uuid: str, message: dict[str, Any]) -> dict[str, Any]:
        """Delete all that the dashboard has of a run; its folder stays. Raises ValueError."""
        self.known(uuid)
        labml_run.delete(uuid)
        self.store.delete(RECORDS, uuid)
        self._n_changes += 1
        return {}

    def run(self, uuid: str, message: Mapping[str, str]) -> dict[str, Any]:
        """A run for its own page: its record, and pieces of its files from the bytes that `message`
        names. Raises ValueError."""
        record = self.known(uuid)
        folder = self.folder(uuid)
        pieces = {}

        for name in DELIVERED if folder else ():
            start = max(0, int(message.get(name, "0")[:18]))
            path = Path(record["about"]["folder"], name)
            pieces[name] = read_piece(
                path, start, BYTES_PER_ANSWER, may_split=name == LOG
            )

        current = record["about"]["knobs"] or asdict(Knobs())
        knobs = {"current": current, "requested": record["knobs"] or current}
        return summary(uuid, record, []) | {
            "pieces": pieces,
            "knobs": knobs,
            "is_here": folder is not None,
            "kept": RunFolder(folder).kept() if folder else [],
        }

    def folder(self, uuid: str) -> Path | None:
        """The folder of a run if it is on this machine. It must carry the uuid: a message could
        name any folder."""
        folder = Path(self.known(uuid)["about"]["folder"]).absolute()
        return folder if folder.name == uuid and os.path.isdir(folder) else None

    def summaries(self) -> list[dict[str, Any]]:
        """All runs for the pages that list and compare them, each with its curves."""
        return [
            summary(uuid, record, record["curve"])
            for uuid, record in self._all().items()
        ]

    def notice_dead(self) -> None:
        """Mark silent runs whose process has ended. Looks at each run at most once in
        SECONDS_OF_SILENCE."""
        now = time.monotonic()
        for uuid, heard in list(self._heard.items()):
            if now - heard >= SECONDS_OF_SILENCE:
                self._heard[uuid] = now
                self._notice_if_dead(uuid)

    def find(self, name: str) -> str:
        """The uuid of the run of Folio or labml's clients whose uuid is `name` or the only one to
        begin with it. Raises UnknownRunError."""
        uuids = self.store.keys(LABMLS)
        if name in uuids:
            return name
        matching = [uuid for uuid in uuids if uuid.startswith(name)]
        if len(matching) != 1:
            n = len(matching) or "no"
            raise UnknownRunError(f"{n} runs of the dashboard begin with {name[:64]!r}")

        return matching[0]

    def known(self, uuid: str) -> dict[str, Any]:
        """The record of a run. Raises UnknownRunError if there is none."""
        record = self.record(uuid)
        if record is None:
            raise UnknownRunError(f"the dashboard does not have the run {uuid}")
        return record

    def _notice_if_dead(self, uuid: str) -> None:
        """Mark a run that is in progress although nobody holds the lock of its folder: its folder
        says how it ended, or it is dead."""
        record = self.record(uuid)
        if record is None or record["status"] != "in progress":
            self._heard.pop(uuid, None)
            return

        path = self.folder(uuid)
        if path is not None and not RunFolder(path).is_locked():
            status = "dead"
            with contextlib.suppress(RunFolderError):
                ended = RunFolder(path).status()["status"]
                status = "dead" if ended == "in progress" else ended
            labml_run.mark(uuid, status)
            self._put(uuid, record | {"status": status}, record)

    def _put(
        self, uuid: str, record: Mapping[str, Any], before: Mapping[str, Any] | None
    ) -> None:
        """Keep a record, and count the change."""
        if record != before:
            self.store.put(RECORDS, uuid, json.dumps(record))
            self._n_changes += 1

    def record(self, uuid: str) -> dict[str, Any] | None:
        """The stored record of a run of Folio, or None."""
        text = self.store.get(RECORDS, uuid)
        # A run that was deleted on labml's page starts from nothing when it reports again.
        if text is None or self.store.get(LABMLS, uuid) is None:
            return None
        return json.loads(text)

    def _all(self) -> dict[str, dict[str, Any]]:
        records = {uuid: self.record(uuid) for uuid in self.store.keys(RECORDS)}
        return {uuid: record for uuid, record in records.items() if record is not None}


def _rows(text: str) -> list[dict[str, Any]]:
    """The rows in a piece of metrics.jsonl. Raises ValueError if one is damaged."""
    try:
        # NaN is not JSON: as text
        rows = [json.loads(line, parse_constant=str) for line in text.split("\n")[:-1]]
    except ValueError as error:
        raise ValueError(f"{METRICS} is damaged") from error
    return checked({"rows": rows}, ROWS, METRICS)["rows"]
