"""Delivers a run to the dashboard, while it trains or afterwards.

Nothing is kept in memory for the dashboard: each message is read from the run folder. An absent, dead or silent
dashboard therefore costs neither memory nor time, and when it comes back it receives everything it missed.
"""

import http.client
import itertools
import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from runs.files import ROOT
from runs.run_folder import RunFolder, RunFolderError

ROWS_PER_MESSAGE = 1_000
LOG_BYTES_PER_MESSAGE = 64 * 1024
SECONDS_TO_ANSWER = 5.0  # per message, while a run trains
NOT_OURS = "it answers, but it is not Folio's dashboard"


class DeliveryError(RuntimeError):
    """The dashboard did not take a message. The text is a short reason, shown as `ADDRESS (reason)`."""


class RefusedError(DeliveryError):
    """The dashboard rejected the message; sending it again would change nothing."""


class Delivery:
    """Delivers one run to one dashboard."""

    def __init__(self, run: RunFolder, server: str):
        """`server` is the dashboard's base address, such as http://127.0.0.1:5005."""
        self.run = run
        self.server = server
        self.page = f"{server}/run/{run.path.name}"  # the run's page
        self.rows = 0  # rows of metrics.jsonl that the dashboard has
        self.row_bytes = 0  # the byte offset of the next row
        self.log = 0  # bytes of log.txt that the dashboard has
        self.must_restart = False  # whether the dashboard has to drop what it has of the run
        self.about: dict[str, Any] = {}  # the run's description, as delivered
        self.knobs: Mapping[str, Any] | None = None  # as the dashboard's user wants them

    def send(self, seconds: float = SECONDS_TO_ANSWER) -> bool:
        """Send one message, and return whether there is more to send. Raises DeliveryError and RunFolderError."""
        before = self.rows, self.log, self.must_restart
        lines = list(itertools.islice(self._lines(self.row_bytes), ROWS_PER_MESSAGE))
        try:
            rows = [json.loads(line) for line in lines]
        except ValueError as error:
            raise RunFolderError("metrics.jsonl is damaged") from error
        log, log_to = self._next_log()
        about = self.run.about()
        message = {"rows_from": self.rows, "rows": rows, "log_from": self.log, "log_to": log_to, "log": log}
        message |= {"restart": self.must_restart, "status": self.run.status()}
        if about != self.about:
            message["about"] = about
        reply = ask(f"{self.server}/api/folio/runs/{self.run.path.name}", "POST", message, seconds)
        are_counts = all(isinstance(reply.get(key), int) and reply[key] >= 0 for key in ("rows", "log"))
        if not are_counts or not isinstance(reply.get("knobs"), dict | None):
            raise DeliveryError(NOT_OURS)
        self.about, self.knobs, self.must_restart = about, reply.get("knobs"), False
        if (reply["rows"], reply["log"]) == (self.rows + len(lines), log_to):
            self.rows, self.row_bytes, self.log = reply["rows"], self.row_bytes + sum(map(len, lines)), log_to
        else:
            self._continue_from(reply["rows"], reply["log"])
        # If the dashboard took nothing, the next message waits, although there is more to send.
        has_moved = (self.rows, self.log, self.must_restart) != before
        return has_moved and (self.must_restart or self.n_remaining() > 0 or _size(self.run.log_path) > self.log)

    def n_remaining(self) -> int:
        """The number of rows that the dashboard does not have."""
        return sum(1 for _ in self._lines(self.row_bytes))

    def _continue_from(self, rows: int, log: int) -> None:
        """Continue after the rows and the bytes of the log that the dashboard has.

        If it has more than the run folder (resuming a run removes rows), it drops them all and receives them anew.
        """
        self.about = {}  # a dashboard that lost rows may have lost the description too
        lengths = [len(line) for line in itertools.islice(self._lines(0), rows)]
        self.must_restart = len(lengths) < rows or log > _size(self.run.log_path)
        self.rows, self.row_bytes, self.log = (0, 0, 0) if self.must_restart else (rows, sum(lengths), log)

    def _lines(self, start: int) -> Iterator[bytes]:
        """The complete lines of metrics.jsonl from byte `start`."""
        if _size(self.run.metrics_path) > start:
            with open(self.run.metrics_path, "rb") as file:
                file.seek(start)
                yield from itertools.takewhile(lambda line: line.endswith(b"\n"), file)

    def _next_log(self) -> tuple[str, int]:
        """The next piece of log.txt, and the byte at which it ends."""
        if _size(self.run.log_path) <= self.log:
            return "", self.log
        with open(self.run.log_path, "rb") as file:
            file.seek(self.log)
            content = file.read(LOG_BYTES_PER_MESSAGE)
        content = content[: content.rfind(b"\n") + 1] or content
        return content.decode("utf-8", "replace"), self.log + len(content)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def ask(url: str, method: str, message: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Send a JSON object and return the one in the answer. Raises DeliveryError if there is no valid answer."""
    directly = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy could not reach this machine
    try:
        request = urllib.request.Request(url, json.dumps(message).encode(), method=method)
        request.add_header("Content-Type", "application/json")
        with directly.open(request, timeout=seconds) as response:
            reply = json.loads(response.read(2**20))
    except urllib.error.HTTPError as error:
        raise _refusal(error) from error
    except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
        cause = getattr(error, "reason", error)  # urllib's errors contain the system's
        raise DeliveryError(getattr(cause, "strerror", None) or str(cause) or type(cause).__name__) from error
    if not isinstance(reply, dict):
        raise DeliveryError(NOT_OURS)
    return reply


def _refusal(error: urllib.error.HTTPError) -> DeliveryError:
    """The error for an HTTP status of 400 or more: its reason if the answer has one, else the status."""
    try:
        reason = json.loads(error.read(2**16))["error"]
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, RecursionError):
        reason = None
    return RefusedError(str(reason)) if reason and error.code < 500 else DeliveryError(f"it answers {error.code}")


def dashboard_address() -> str | None:
    """The dashboard's base address, such as http://127.0.0.1:5005, from `labml_app_url` or .labml.yaml.

    None if it is empty: then no dashboard is used. Raises DeliveryError if it is not an address.
    """
    # labml prefers .labml.yaml to its own environment variable. Here the variable wins: it is set for one run.
    address = os.environ.get("labml_app_url")  # noqa: SIM112, labml's own name
    if address is None:
        address = yaml.safe_load((ROOT / ".labml.yaml").read_text()).get("app_url")
    if not address:
        return None
    try:
        parts = urlsplit(address)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return f"{parts.scheme}://{parts.netloc}"
    except ValueError:
        pass
    raise DeliveryError(f"the dashboard's address {address!r} is not of the form http://127.0.0.1:5005")
