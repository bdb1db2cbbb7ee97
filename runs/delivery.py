"""Delivers a run to the dashboard, while it trains or afterwards.

Each message is read from the run folder, so an absent, dead or silent dashboard costs neither memory nor time, and when
it comes back it receives everything it missed.
"""

import contextlib
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

from runs.errors import InputError
from runs.files import ROOT
from runs.run_folder import RunFolder, RunFolderError

ROWS_PER_MESSAGE = 1_000
LOG_BYTES_PER_MESSAGE = 64 * 1024
SECONDS_TO_ANSWER = 5.0  # per message, while a run trains
NOT_OURS = "it answers, but not as Folio's dashboard does"


class DeliveryError(InputError):
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
        self.sent = {"rows": SentRows(run.metrics_path), "hardware": SentRows(run.hardware_path)}
        self.log = 0  # bytes of log.txt that the dashboard has
        self.must_restart = False  # whether the dashboard has to drop what it has of the run
        self.about: dict[str, Any] = {}  # the run's description, as delivered
        self.knobs: Mapping[str, Any] | None = None  # as the dashboard's user wants them

    def send(self, seconds: float = SECONDS_TO_ANSWER) -> bool:
        """Send one message, and return whether there is more to send. Raises DeliveryError and RunFolderError."""
        before = self._state()
        rows = {name: sent.next() for name, sent in self.sent.items()}
        log, log_to = self._next_log()
        about = self.run.about()
        message: dict[str, Any] = {"log_from": self.log, "log_to": log_to, "log": log, "restart": self.must_restart}
        message |= {"status": self.run.status(), "heard": self.run.last_heard()}
        message |= {f"{name}_from": sent.n for name, sent in self.sent.items()} | rows
        if about != self.about:
            message["about"] = about
        reply = ask(f"{self.server}/api/folio/runs/{self.run.path.name}", "POST", message, seconds)
        stored = {name: reply.get(name) for name in (*self.sent, "log")}
        are_counts = all(isinstance(count, int) and count >= 0 for count in stored.values())
        if not are_counts or not isinstance(reply.get("knobs"), dict | None):
            raise DeliveryError(NOT_OURS)
        self.about, self.knobs, self.must_restart = about, reply.get("knobs"), False
        if stored != {name: sent.n + len(rows[name]) for name, sent in self.sent.items()} | {"log": log_to}:
            self.about = {}  # a dashboard that lost rows may have lost the description too
        self._continue_from(stored)
        # If the dashboard took nothing, the next message waits, although there is more to send.
        has_more = self.must_restart or self.n_remaining() > 0 or _size(self.run.log_path) > self.log
        return self._state() != before and has_more

    def n_remaining(self) -> int:
        """The number of rows that the dashboard does not have."""
        return sum(sent.n_remaining() for sent in self.sent.values())

    def _state(self) -> tuple[Any, ...]:
        return *(sent.n for sent in self.sent.values()), self.log, self.must_restart

    def _continue_from(self, stored: Mapping[str, Any]) -> None:
        """Continue after the rows and the bytes of the log that the dashboard has. If it has more than the run folder,
        because resuming has removed rows, it drops them all and receives them anew."""
        exists = [sent.continue_from(stored[name]) for name, sent in self.sent.items()]
        self.log = stored["log"]
        if not all(exists) or self.log > _size(self.run.log_path):
            self.must_restart, self.log = True, 0
            for sent in self.sent.values():
                sent.continue_from(0)

    def _next_log(self) -> tuple[str, int]:
        """The next piece of log.txt, and the byte at which it ends."""
        if _size(self.run.log_path) <= self.log:
            return "", self.log
        with open(self.run.log_path, "rb") as file:
            file.seek(self.log)
            content = file.read(LOG_BYTES_PER_MESSAGE)
        content = content[: content.rfind(b"\n") + 1] or content
        return content.decode("utf-8", "replace"), self.log + len(content)


class SentRows:
    """Reads a file of JSON rows from where the dashboard's copy ends."""

    def __init__(self, path: Path):
        self.path = path
        self.n = 0  # rows that the dashboard has
        self._offset = 0  # of the next row, in bytes

    def next(self) -> list[Any]:
        """The next rows, at most ROWS_PER_MESSAGE. Raises RunFolderError if one is damaged."""
        try:
            return [json.loads(line) for line in itertools.islice(self._lines(self._offset), ROWS_PER_MESSAGE)]
        except ValueError as error:
            raise RunFolderError(f"{self.path.name} is damaged") from error

    def n_remaining(self) -> int:
        """The number of rows that the dashboard does not have."""
        return sum(1 for _ in self._lines(self._offset))

    def continue_from(self, n: int) -> bool:
        """Continue after the first `n` rows. Returns whether the file has that many; if not, nothing changes."""
        start, offset = (self.n, self._offset) if n >= self.n else (0, 0)
        lengths = [len(line) for line in itertools.islice(self._lines(offset), n - start)]
        if len(lengths) < n - start:
            return False
        self.n, self._offset = n, offset + sum(lengths)
        return True

    def _lines(self, start: int) -> Iterator[bytes]:
        """The complete lines from byte `start`."""
        if self.path.exists() and self.path.stat().st_size > start:
            with open(self.path, "rb") as file:
                file.seek(start)
                yield from itertools.takewhile(lambda line: line.endswith(b"\n"), file)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def ask(url: str, method: str, message: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Send a JSON object and return the one in the answer. Raises DeliveryError if there is no valid answer."""
    directly = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy could not reach this machine
    try:
        request = urllib.request.Request(url, json.dumps(message).encode(), method=method)
        request.add_header("Content-Type", "application/json")
        with directly.open(request, timeout=seconds) as response:
            content = response.read(2**20)
    except urllib.error.HTTPError as error:
        raise _refusal(error) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        cause = getattr(error, "reason", error)  # urllib's errors contain the system's
        raise DeliveryError(getattr(cause, "strerror", None) or str(cause) or type(cause).__name__) from error
    with contextlib.suppress(ValueError, RecursionError):
        if isinstance(reply := json.loads(content), dict):
            return reply
    raise DeliveryError(NOT_OURS)


def _refusal(error: urllib.error.HTTPError) -> DeliveryError:
    """The error for an HTTP status of 400 or more: its reason if the answer has one, else the status."""
    with contextlib.suppress(OSError, http.client.HTTPException, ValueError, KeyError, TypeError, RecursionError):
        reason = str(json.loads(error.read(2**16))["error"])
        return RefusedError(reason) if error.code < 500 else DeliveryError(reason)
    return DeliveryError(f"{NOT_OURS}: status {error.code}")


def dashboard_address() -> str | None:
    """The dashboard's base address, such as http://127.0.0.1:5005, from `labml_app_url` or .labml.yaml; None if that is
    empty. Raises InputError if it is not an address."""
    # labml prefers .labml.yaml to its own environment variable. Here the variable wins: it is set for one run.
    address = os.environ.get("labml_app_url")  # noqa: SIM112, labml's own name
    if address is None:
        address = yaml.safe_load((ROOT / ".labml.yaml").read_text()).get("app_url")
    if not address:
        return None
    with contextlib.suppress(ValueError):
        parts = urlsplit(address)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return f"{parts.scheme}://{parts.netloc}"
    raise InputError(f"the dashboard's address {address!r} is not of the form http://127.0.0.1:5005")
