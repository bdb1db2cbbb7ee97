"""The thread that delivers a run to the dashboard while it trains."""

import shlex
import threading
from collections.abc import Callable
from urllib.parse import urlsplit

from runs.delivery import Delivery
from runs.schema import METRICS

SECONDS_BETWEEN = 2.0  # between messages; each reply brings the knobs
SECONDS_AT_FIRST = 1.0  # that the first message may take before the run starts
LONGEST_WAIT = 30.0  # seconds before the next try while the dashboard does not answer


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
            self.report(
                f"no dashboard at {self.delivery.server} ({self.trouble}): start one with make dashboard"
            )

    def run(self) -> None:
        """Send messages until `end` is called and everything is sent, or cannot be sent."""
        wait = SECONDS_BETWEEN
        while True:
            is_last = self.is_ending
            try:
                has_more = self.delivery.send()
                if self.trouble and self.has_tried.is_set():
                    self.report(f"the dashboard answers: {self.delivery.page}")
                self.has_delivered, self.trouble, wait = (
                    True,
                    None,
                    0.0 if has_more else SECONDS_BETWEEN,
                )
            except Exception as error:  # whatever is wrong here must not stop the training
                reason = str(error) or type(error).__name__
                if self.trouble is None:
                    self.report(
                        f"the dashboard does not take this run ({reason}): training continues"
                    )
                self.trouble, wait = reason, min(2 * max(wait, 1.0), LONGEST_WAIT)
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
        what = f"{n_rows} evaluation{'s' * (n_rows > 1)}" if n_rows else "how the run ended"
        port = urlsplit(self.delivery.server).port
        command = f"python dashboard.py --import {shlex.quote(str(self.delivery.run.path))}"
        command += f" --port {port}" if port else ""
        return f"not on the dashboard: {what} ({reason}); when `make dashboard` runs, deliver with: {command}"
