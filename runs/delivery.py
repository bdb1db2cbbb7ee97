"""Delivers a run to the dashboard: in a thread while it trains, or afterwards.

Each message is read from the run folder, so an absent, dead or silent dashboard costs neither
memory nor time, and when it comes back it receives everything it missed.
"""

import contextlib
import http.client
import json
import os
import shlex
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import yaml

from runs.errors import InputError
from runs.files import ROOT, read_piece
from runs.run_folder import RunFolder
from runs.schema import DELIVERED, LOG, METRICS, checked, is_size

BYTES_PER_PIECE = 2**19  # of each file in a message; more than the longest row
SECONDS_TO_ANSWER = 5.0  # per message, while a run trains
SECONDS_BETWEEN = 2.0  # messages; each reply brings the knobs
SECONDS_AT_FIRST = 1.0  # that the first message may take before the run starts
LONGEST_WAIT = 30.0  # seconds before the next try while the dashboard does not answer
EXAMPLE = "http://127.0.0.1:5005"
NOT_OURS = "it answers, but not as Folio's dashboard does"
# the answer to a message
STORED = {"stored": dict.fromkeys(DELIVERED, is_size), "knobs": (dict, None)}


class DeliveryError(InputError):
    """The dashboard did not take a message. The text is a short reason, shown as `ADDRESS
    (reason)`."""


class RefusedError(DeliveryError):
    """The dashboard rejected the message; sending it again would change nothing."""


class Delivery:
    def __init__(self, run: RunFolder, server: str):
        """`server` is the dashboard's base address, such as http://127.0.0.1:5005."""
        self.run = run
        self.server = server
        self.page = f"{server}/run/{run.path.name}"  # the run's page
        # bytes of each file that the dashboard has
        self.stored = dict.fromkeys(DELIVERED, 0)
        # whether the dashboard has to drop what it has of the run
        self.must_restart = False
        self.about: dict[str, Any] = {}  # the run's description, as delivered
        # as the dashboard's user wants them
        self.knobs: Mapping[str, Any] | None = None

    def send(self, seconds: float = SECONDS_TO_ANSWER) -> bool:
        """Send one message, and return whether there is more to send. Raises DeliveryError and
        RunFolderError.

        If the dashboard has more than the run folder, because resuming has removed rows, it drops
        everything and receives it anew.
        """
        before = (self.stored, self.must_restart)
        about = self.run.about()
        pieces = {
            name: read_piece(
                self.run.path / name, start, BYTES_PER_PIECE, may_split=name == LOG
            )
            for name, start in self.stored.items()
        }
        message = {
            "restart": self.must_restart,
            "pieces": pieces,
            "status": self.run.status(),
            "heard": self.run.last_heard(),
        }

        if about != self.about:
            message["about"] = about
        address = f"{self.server}/api/folio/runs/{self.run.path.name}"
        reply = ask(address, "POST", message, seconds, STORED)

        self.knobs = reply["knobs"]
        self.stored = reply["stored"]
        # A dashboard that lost rows may have lost the description too.
        has_all = all(
            self.stored[name] == piece["to"] for name, piece in pieces.items()
        )
        self.about = about if has_all else {}
        sizes = self.run.delivered_sizes()
        self.must_restart = any(
            self.stored[name] > size for name, size in sizes.items()
        )

        if self.must_restart:
            self.stored = dict.fromkeys(DELIVERED, 0)
        # If the dashboard took nothing, the next message waits, although there is more to send.
        has_changed = before != (self.stored, self.must_restart)
        return has_changed and (self.must_restart or sizes != self.stored)

    def n_evaluations(self, start: int = 0) -> int:
        """The number of evaluations from byte `start` of metrics.jsonl."""
        return read_piece(self.run.path / METRICS, start, -1)["text"].count("\n")


class Uploader(threading.Thread):
    """Delivers a run in the background. Training never waits for it, and no failure in it reaches
    training."""

    def __init__(self, delivery: Delivery, report: Callable[[str], None]):
        """`report` shows one line of text to the user."""
        super().__init__(name="uploader", daemon=True)
        self.delivery = delivery
        self.report = report
        self.wake = threading.Event()  # set it when there is something to send
        # set after the first message, or when the wait for it is over
        self.has_tried = threading.Event()
        self.has_delivered = False
        self.is_ending = False
        # why the last message was not taken
        self.trouble: str | None = f"no answer within {SECONDS_AT_FIRST:g} s"

    def start_and_report(self) -> None:
        """Start, and report within a second whether the dashboard answers."""
        self.start()
        self.has_tried.wait(SECONDS_AT_FIRST)
        self.has_tried.set()  # from now on, `run` reports an answer

        if self.trouble is None:
            self.report(f"dashboard {self.delivery.page}")
        else:
            problem = f"no dashboard at {self.delivery.server} ({self.trouble})"
            self.report(f"{problem}: start one with make dashboard")

    def run(self) -> None:
        """Send messages until `end` is called and everything is sent, or cannot be sent."""
        wait = SECONDS_BETWEEN
        while True:
            is_last = self.is_ending
            has_more = False
            try:
                has_more = self.delivery.send()
                if self.trouble and self.has_tried.is_set():
                    self.report(f"the dashboard answers: {self.delivery.page}")
                self.has_delivered = True
                self.trouble = None
                wait = 0.0 if has_more else SECONDS_BETWEEN
            except (
                Exception
            ) as error:  # whatever is wrong here must not stop the training
                reason = str(error) or type(error).__name__
                if self.trouble is None:
                    problem = f"the dashboard does not take this run ({reason})"
                    self.report(f"{problem}: training continues")
                self.trouble = reason
                wait = min(2 * max(wait, 1.0), LONGEST_WAIT)
            self.has_tried.set()
            if self.is_ending and (self.trouble or (is_last and not has_more)):
                return
            self.wake.wait(0.0 if self.is_ending else wait)
            self.wake.clear()

    def end(self, seconds: float) -> str | None:
        """Deliver the rest within `seconds`. Returns a line about what a dashboard did not take, or
        None."""
        self.is_ending = True
        self.wake.set()
        self.join(seconds)

        if not self.has_delivered or (not self.is_alive() and self.trouble is None):
            return None
        reason = self.trouble or f"it did not take everything within {seconds:.0f} s"
        n_rows = self.delivery.n_evaluations(self.delivery.stored[METRICS])
        missing = (
            f"{n_rows} evaluation{'s' * (n_rows > 1)}"
            if n_rows
            else "how the run ended"
        )
        command = (
            f"python dashboard.py --import {shlex.quote(str(self.delivery.run.path))}"
        )
        port = urlsplit(self.delivery.server).port

        if port:
            command += f" --port {port}"
        hint = f"when `make dashboard` runs, deliver with: {command}"
        return f"not on the dashboard: {missing} ({reason}); {hint}"


def ask(
    url: str,
    method: str,
    message: Mapping[str, Any],
    seconds: float,
    schema: Mapping[str, Any],
) -> dict[str, Any]:
    """Send a JSON object and return the one in the answer. Raises DeliveryError if it does not
    match `schema`."""
    # a proxy could not reach this machine
    directly = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        request = urllib.request.Request(
            url, json.dumps(message).encode(), method=method
        )
        request.add_header("Content-Type", "application/json")
        with directly.open(request, timeout=seconds) as response:
            content = response.read(2**20)
    except urllib.error.HTTPError as error:
        raise _refusal(error) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        cause = getattr(error, "reason", error)  # urllib's errors contain the system's
        reason = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
        raise DeliveryError(reason) from error

    with contextlib.suppress(ValueError, RecursionError):
        return checked(json.loads(content), schema, "the answer")

    raise DeliveryError(NOT_OURS)


def _refusal(error: urllib.error.HTTPError) -> DeliveryError:
    """The error for an HTTP status of 400 or more: its reason if the answer has one, else the
    status."""
    kind = RefusedError if error.code < 500 else DeliveryError
    with contextlib.suppress(
        OSError, http.client.HTTPException, ValueError, RecursionError
    ):
        return kind(
            checked(json.loads(error.read(2**16)), {"error": str}, "the answer")[
                "error"
            ]
        )
    return DeliveryError(f"{NOT_OURS}: status {error.code}")


def dashboard_address() -> str | None:
    """The dashboard's base address, such as http://127.0.0.1:5005, from `labml_app_url` or
    .labml.yaml; None if that is empty. Raises InputError if it is not an address."""
    # labml prefers .labml.yaml to its own environment variable. Here the variable wins: it is set
    # for one run.
    address = os.environ.get("labml_app_url")  # noqa: SIM112, labml's own name
    if address is None:
        try:
            address = yaml.safe_load((ROOT / ".labml.yaml").read_text()).get("app_url")
        except (OSError, yaml.YAMLError, AttributeError) as error:
            raise InputError(
                f".labml.yaml does not hold keys and values, such as app_url: {EXAMPLE}"
            ) from error

    if not address:
        return None
    with contextlib.suppress(ValueError):
        parts = urlsplit(str(address))
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return f"{parts.scheme}://{parts.netloc}"

    raise InputError(
        f"the dashboard's address {address!r} is not of the form {EXAMPLE}"
    )
