"""Brings a run's files to the dashboard: while it trains, or afterwards.

Nothing is held in memory for the dashboard: what it should show is in the run's folder, and is read from there when
the dashboard takes it. An absent, dead or silent server therefore costs neither memory nor time, and what it missed is
still there when it comes back.
"""

import http.client
import itertools
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from training.run_folder import RunFolder

ROWS_AT_ONCE = 1_000
LOG_AT_ONCE = 64 * 1024  # bytes
SECONDS_BETWEEN = 2.0  # messages, so that knobs that are turned arrive
SECONDS_TO_ANSWER = 5.0  # to one message
LONGEST_WAIT = 30.0  # before an absent server is tried again


class DeliveryError(RuntimeError):
    """The dashboard did not take a message; why, in some words."""


class Delivery:
    """One run on its way to one dashboard."""

    def __init__(self, run: RunFolder, server: str):
        """`server` is the beginning of its address, such as http://127.0.0.1:5005."""
        self.run = run
        self.server = server
        self.rows = 0  # of metrics.jsonl that the dashboard has
        self.log = 0  # bytes of log.txt that it has
        self.row_bytes = 0  # where in the file the next row begins
        self.told: dict[str, Any] = {}  # what the dashboard knows about the run beside rows and log
        self.knobs: Mapping[str, Any] | None = None  # how they are wanted

    @property
    def page(self) -> str:
        """The address of the run's own page."""
        return f"{self.server}/run/{self.run.path.name}"

    def send(self, seconds: float = SECONDS_TO_ANSWER) -> bool:
        """Send one message; returns whether there is more to send. Raises DeliveryError."""
        rows, row_bytes = self._next_rows()
        text, log_to = self._next_log()
        message: dict[str, Any] = {"rows_from": self.rows, "rows": rows, "log_from": self.log, "log": text}
        about = self.run.about()
        message |= {"status": self.run.status()} | ({} if about == self.told else {"about": about})
        reply = self._post(message, seconds)
        self.told = about
        self.knobs = reply["knobs"]
        if reply["rows"] == self.rows + len(rows) and reply["log"] == log_to:
            self.rows, self.row_bytes, self.log = reply["rows"], row_bytes, log_to
        else:
            self._go_to(reply["rows"], reply["log"], seconds)
        return self.remaining > 0 or self._log_size() > self.log

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
        self._post({"restart": True, "about": self.run.about(), "status": self.run.status()}, seconds)

    def _next_rows(self) -> tuple[list[dict[str, Any]], int]:
        lines = list(itertools.islice(self._lines(), ROWS_AT_ONCE))
        return [json.loads(line) for line in lines], self.row_bytes + sum(map(len, lines))

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
        text = whole.decode("utf-8", "ignore")  # a character that is cut in two is left for the next message
        return text, self.log + len(text.encode())

    def _log_size(self) -> int:
        return self.run.log_path.stat().st_size if self.run.log_path.exists() else 0

    def _post(self, message: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        return ask(f"{self.server}/api/folio/runs/{self.run.path.name}", "POST", message, seconds)


def ask(url: str, method: str, message: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Send JSON, get JSON. Raises DeliveryError where no answer comes, or one that is no good."""
    request = urllib.request.Request(url, json.dumps(message).encode(), method=method)
    request.add_header("Content-Type", "application/json")
    directly = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy would answer in its place
    try:
        with directly.open(request, timeout=seconds) as response:
            reply = json.loads(response.read(2**20))
    except urllib.error.HTTPError as error:
        raise DeliveryError(_reason(error)) from error
    except urllib.error.URLError as error:
        raise DeliveryError(f"{error.reason}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise DeliveryError(str(error) or type(error).__name__) from error
    if not isinstance(reply, dict) or "knobs" not in reply:
        raise DeliveryError("it answers, but not as Folio's dashboard does")
    return reply


def _reason(error: urllib.error.HTTPError) -> str:
    """What is said of an error answer: its own words where it refuses something, else its number."""
    try:
        words = json.loads(error.read(2**16))["error"]
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        words = None
    return str(words) if words and error.code < 500 else f"it answers {error.code}"


class Courier(threading.Thread):
    """Delivers beside the training. Never in its way: a daemon, with nothing that the training waits for."""

    def __init__(self, delivery: Delivery, says: Callable[[str], None]):
        super().__init__(name="courier", daemon=True)
        self.delivery = delivery
        self.says = says
        self.wake = threading.Event()
        self.is_ending = False
        self.trouble: str | None = None  # why the last message was not taken

    def run(self) -> None:
        wait = SECONDS_BETWEEN
        while True:
            is_last = self.is_ending
            try:
                more = self.delivery.send()
                if self.trouble is not None:
                    self.says(f"the dashboard answers: {self.delivery.page}")
                self.trouble, wait = None, 0.0 if more else SECONDS_BETWEEN
            except Exception as error:  # never in the way, not even by a mistake of its own
                if self.trouble is None:
                    self.says(
                        f"the dashboard at {self.delivery.server} does not take this run ({error}): training goes on"
                    )
                self.trouble, wait = str(error) or type(error).__name__, min(2 * max(wait, 1.0), LONGEST_WAIT)
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
        return (
            f"not on the dashboard: {self.delivery.remaining} of the evaluations ({why});"
            f" python dashboard.py --import {self.delivery.run.path.name} brings them there"
        )
