"""Brings a run's files to the dashboard: while it trains, or afterwards.

Nothing is held in memory for the dashboard: what it should show is in the run's folder, and is read from there when
the dashboard takes it. An absent, dead or silent server therefore costs neither memory nor time, and what it missed is
still there when it comes back.
"""

import http.client
import itertools
import json
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from runs.run_folder import RunFolder, RunFolderError

ROOT = Path(__file__).parent.parent
ROWS_AT_ONCE = 1_000
LOG_AT_ONCE = 64 * 1024  # bytes
SECONDS_BETWEEN = 2.0  # messages, so that knobs that are turned arrive
SECONDS_TO_ANSWER = 5.0  # to one message
SECONDS_AT_FIRST = 1.0  # until a run is told that no dashboard is there
LONGEST_WAIT = 30.0  # before an absent server is tried again


class DeliveryError(RuntimeError):
    """The dashboard did not take a message; why, in some words."""


class RefusedError(DeliveryError):
    """It answers, and refuses this message: sending it again would change nothing."""


class Delivery:
    """One run on its way to one dashboard."""

    def __init__(self, run: RunFolder, server: str):
        """`server` is the beginning of its address, such as http://127.0.0.1:5005."""
        self.run = run
        self.server = server
        self.rows = 0  # of metrics.jsonl that the dashboard has
        self.log = 0  # bytes of log.txt that it has
        self.row_bytes = 0  # where in the file the next row begins
        self.restarts = 0
        self.told: dict[str, Any] = {}  # what the dashboard knows about the run beside rows and log
        self.knobs: Mapping[str, Any] | None = None  # how they are wanted

    @property
    def page(self) -> str:
        """The address of the run's own page."""
        return f"{self.server}/run/{self.run.path.name}"

    def send(self, seconds: float = SECONDS_TO_ANSWER) -> bool:
        """Send one message; returns whether there is more to send. Raises DeliveryError."""
        before = self.rows, self.log, min(self.restarts, 1)
        rows, row_bytes = self._next_rows()
        text, log_to = self._next_log()
        message: dict[str, Any] = {"rows_from": self.rows, "rows": rows}
        message |= {"log_from": self.log, "log_to": log_to, "log": text, "status": self.run.status()}
        about = self.run.about()
        reply = self._post(message | ({} if about == self.told else {"about": about}), seconds)
        self.told = about
        self.knobs = reply["knobs"]
        if reply["rows"] == self.rows + len(rows) and reply["log"] == log_to:
            self.rows, self.row_bytes, self.log = reply["rows"], row_bytes, log_to
        else:
            self._go_to(reply["rows"], reply["log"], seconds)
        # A dashboard that takes nothing is not asked again at once, whatever is left.
        has_moved = (self.rows, self.log, min(self.restarts, 1)) != before
        return has_moved and (self.remaining > 0 or self._log_size() > self.log)

    @property
    def remaining(self) -> int:
        """How many rows the dashboard does not have yet."""
        return sum(1 for _ in self._lines())

    def _go_to(self, rows: int, log: int, seconds: float) -> None:
        """Go on from what the dashboard has; where it has more than there is (rows that a resumed run has cut off),
        it begins anew."""
        self.rows = self.row_bytes = self.log = 0
        lengths = [len(line) for line in itertools.islice(self._lines(), rows)]
        self.rows, self.row_bytes = len(lengths), sum(lengths)
        if self.rows == rows and log <= self._log_size():
            self.log = log
            return
        self.rows = self.row_bytes = 0
        self.restarts += 1
        self._post({"restart": True, "about": self.run.about(), "status": self.run.status()}, seconds)

    def _next_rows(self) -> tuple[list[dict[str, Any]], int]:
        lines = list(itertools.islice(self._lines(), ROWS_AT_ONCE))
        return _parsed(lines), self.row_bytes + sum(map(len, lines))

    def _lines(self) -> Iterator[bytes]:
        """The whole lines of metrics.jsonl that the dashboard does not have."""
        if self.run.metrics_path.exists():
            with open(self.run.metrics_path, "rb") as file:
                file.seek(self.row_bytes)
                yield from itertools.takewhile(lambda line: line.endswith(b"\n"), file)

    def _next_log(self) -> tuple[str, int]:
        if not self.run.log_path.exists():
            return "", self.log
        with open(self.run.log_path, "rb") as file:
            file.seek(self.log)
            content = file.read(LOG_AT_ONCE)
        whole = content[: content.rfind(b"\n") + 1] or content
        return whole.decode("utf-8", "replace"), self.log + len(whole)

    def _log_size(self) -> int:
        return self.run.log_path.stat().st_size if self.run.log_path.exists() else 0

    def _post(self, message: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        reply = ask(f"{self.server}/api/folio/runs/{self.run.path.name}", "POST", message, seconds)
        counts = [reply.get("rows"), reply.get("log")]
        if not all(isinstance(count, int) for count in counts) or not isinstance(reply.get("knobs"), dict | None):
            raise DeliveryError("it answers, but not as Folio's dashboard does")
        return reply


def _parsed(lines: list[bytes]) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in lines]
    except ValueError as error:
        raise RunFolderError("metrics.jsonl is damaged") from error


def ask(url: str, method: str, message: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Send JSON, get JSON. Raises DeliveryError where no answer comes, or one that is no good."""
    directly = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy would answer in its place
    try:
        request = urllib.request.Request(url, json.dumps(message).encode(), method=method)
        request.add_header("Content-Type", "application/json")
        with directly.open(request, timeout=seconds) as response:
            reply = json.loads(response.read(2**20))
    except urllib.error.HTTPError as error:
        raise _refusal(error) from error
    except urllib.error.URLError as error:
        raise DeliveryError(getattr(error.reason, "strerror", None) or str(error.reason)) from error
    except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
        raise DeliveryError(str(error) or type(error).__name__) from error
    if not isinstance(reply, dict):
        raise DeliveryError("it answers, but not as Folio's dashboard does")
    return reply


def _refusal(error: urllib.error.HTTPError) -> DeliveryError:
    """What an error answer means: a refusal in words, or a number."""
    try:
        words = json.loads(error.read(2**16))["error"]
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, RecursionError):
        words = None
    return RefusedError(str(words)) if words and error.code < 500 else DeliveryError(f"it answers {error.code}")


def dashboard() -> str | None:
    """The beginning of the dashboard's address, from labml_app_url or .labml.yaml; None where there is to be none.

    Raises DeliveryError where it is no address.
    """
    # labml prefers .labml.yaml to its own environment variable; a variable is the more deliberate of the two.
    address = os.environ.get("labml_app_url")  # noqa: SIM112, labml's own name
    if address is None:
        address = yaml.safe_load((ROOT / ".labml.yaml").read_text()).get("app_url")
    return server_of(address) if address else None


def server_of(address: str) -> str:
    """The beginning of a dashboard's address, such as http://127.0.0.1:5005, from any address below it.

    Raises DeliveryError where it is none.
    """
    try:
        parts = urlsplit(address)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return f"{parts.scheme}://{parts.netloc}"
    except ValueError:
        pass
    raise DeliveryError(f"the dashboard's address {address!r} is not of the form http://127.0.0.1:5005")


class Uploader(threading.Thread):
    """Delivers beside the training. Never in its way: a daemon, with nothing that the training waits for."""

    def __init__(self, delivery: Delivery, says: Callable[[str], None]):
        super().__init__(name="uploader", daemon=True)
        self.delivery = delivery
        self.says = says
        self.wake = threading.Event()
        self.has_tried = threading.Event()
        self.is_ending = False
        self.trouble: str | None = f"no answer within {SECONDS_AT_FIRST:g} s"  # why the last message was not taken

    def begin(self) -> None:
        """Start; say within a second whether the dashboard is there."""
        self.start()
        self.has_tried.wait(SECONDS_AT_FIRST)
        if self.trouble is None:
            self.says(f"dashboard {self.delivery.page}")
        else:
            self.says(f"no dashboard at {self.delivery.server} ({self.trouble}): make dashboard starts one")

    def run(self) -> None:
        wait = SECONDS_BETWEEN
        while True:
            is_last = self.is_ending
            try:
                more = self.delivery.send()
                if self.trouble is not None and self.has_tried.is_set():
                    self.says(f"the dashboard answers: {self.delivery.page}")
                self.trouble, wait = None, 0.0 if more else SECONDS_BETWEEN
            except Exception as error:  # never in the way, not even by a mistake of its own
                why = str(error) or type(error).__name__
                if self.trouble is None:
                    self.says(
                        f"the dashboard at {self.delivery.server} does not take this run ({why}): training goes on"
                    )
                self.trouble, wait = why, min(2 * max(wait, 1.0), LONGEST_WAIT)
            self.has_tried.set()
            if is_last and (self.trouble or not more):
                return
            self.wake.wait(0.0 if self.is_ending else wait)
            self.wake.clear()

    def end(self, seconds: float) -> str | None:
        """Deliver what is left, within `seconds`; returns what is to be said of what was not delivered."""
        self.is_ending = True
        self.wake.set()
        self.join(seconds)
        if not self.is_alive() and self.trouble is None:
            return None
        why = self.trouble or f"it did not take everything within {seconds:.0f} s"
        left = self.delivery.remaining
        what = f"{left} of the evaluations" if left else "how the run ended"
        port = urlsplit(self.delivery.server).port
        command = f"python dashboard.py --import {self.delivery.run.path}" + (f" --port {port}" if port != 5005 else "")
        return f"not on the dashboard: {what} ({why}); {command} brings it there"
