"""Delivers a run to the dashboard, while it trains or afterwards.

Each message is read from the run folder, so an absent, dead or silent dashboard costs neither
memory nor time, and when it comes back it receives everything it missed.
"""

import contextlib
import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import yaml

from runs.errors import InputError
from runs.files import ROOT
from runs.run_files import read_piece
from runs.run_folder import RunFolder
from runs.schema import DELIVERED, LOG, METRICS, checked, is_size

BYTES_PER_PIECE = 2**19  # of each file in a message; more than the longest row
SECONDS_TO_ANSWER = 5.0  # per message, while a run trains
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
        self.stored = dict.fromkeys(DELIVERED, 0)  # bytes of each file that the dashboard has
        self.must_restart = False  # whether the dashboard has to drop what it has of the run
        self.about: dict[str, Any] = {}  # the run's description, as delivered
        self.knobs: Mapping[str, Any] | None = None  # as the dashboard's user wants them

    def send(self, seconds: float = SECONDS_TO_ANSWER) -> bool:
        """Send one message, and return whether there is more to send. Raises DeliveryError and
        RunFolderError.

        If the dashboard has more than the run folder, because resuming has removed rows, it drops
        everything and receives it anew.
        """
        before, about = (self.stored, self.must_restart), self.run.about()
        pieces = {
            name: read_piece(self.run.path / name, start, BYTES_PER_PIECE, may_split=name == LOG)
            for name, start in self.stored.items()
        }
        message: dict[str, Any] = {"restart": self.must_restart, "pieces": pieces}
        message |= {"status": self.run.status(), "heard": self.run.last_heard()}
        message |= {"about": about} if about != self.about else {}
        reply = ask(
            f"{self.server}/api/folio/runs/{self.run.path.name}", "POST", message, seconds, STORED
        )
        stored, self.knobs = reply["stored"], reply["knobs"]
        # A dashboard that lost rows may have lost the description too.
        self.about = (
            about if stored == {name: piece["to"] for name, piece in pieces.items()} else {}
        )
        paths = {name: self.run.path / name for name in DELIVERED}
        sizes = {name: path.stat().st_size if path.exists() else 0 for name, path in paths.items()}
        self.must_restart = any(stored[name] > size for name, size in sizes.items())
        self.stored = dict.fromkeys(DELIVERED, 0) if self.must_restart else stored
        # If the dashboard took nothing, the next message waits, although there is more to send.
        return before != (self.stored, self.must_restart) and (
            self.must_restart or sizes != self.stored
        )

    def n_evaluations(self, start: int = 0) -> int:
        """The number of evaluations from byte `start` of metrics.jsonl."""
        return read_piece(self.run.path / METRICS, start, -1)["text"].count("\n")


def ask(
    url: str, method: str, message: Mapping[str, Any], seconds: float, schema: Mapping[str, Any]
) -> dict[str, Any]:
    """Send a JSON object and return the one in the answer. Raises DeliveryError if it does not
    match `schema`."""
    # a proxy could not reach this machine
    directly = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        request = urllib.request.Request(url, json.dumps(message).encode(), method=method)
        request.add_header("Content-Type", "application/json")
        with directly.open(request, timeout=seconds) as response:
            content = response.read(2**20)
    except urllib.error.HTTPError as error:
        raise _refusal(error) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        cause = getattr(error, "reason", error)  # urllib's errors contain the system's
        raise DeliveryError(
            getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
        ) from error
    with contextlib.suppress(ValueError, RecursionError):
        return checked(json.loads(content), schema, "the answer")
    raise DeliveryError(NOT_OURS)


def _refusal(error: urllib.error.HTTPError) -> DeliveryError:
    """The error for an HTTP status of 400 or more: its reason if the answer has one, else the
    status."""
    with contextlib.suppress(
        OSError, http.client.HTTPException, ValueError, KeyError, TypeError, RecursionError
    ):
        reason = str(json.loads(error.read(2**16))["error"])
        return RefusedError(reason) if error.code < 500 else DeliveryError(reason)
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
    raise InputError(f"the dashboard's address {address!r} is not of the form {EXAMPLE}")
