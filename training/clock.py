"""Training time: what the budget in seconds counts. Evaluation, compilation and saving stop the clock."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

SECONDS_BETWEEN_SYNCHRONISATIONS = 2.0


class TrainingClock:
    """Counts the seconds between `start` and `stop`."""

    def __init__(self, device: torch.device):
        self.device = device
        self._before = 0.0  # seconds counted up to the last start
        self._started: float | None = None
        self._last_read = 0.0
        self._last_seconds = 0.0

    def set(self, seconds: float) -> None:
        """Go on from where a run was when it was interrupted; the clock stands still."""
        self._before = self._last_seconds = seconds

    def start(self) -> None:
        self._synchronise()
        self._started = self._last_read = time.perf_counter()
        self._last_seconds = self._before

    def stop(self) -> None:
        self._synchronise()
        if self._started is not None:
            self._before += time.perf_counter() - self._started
        self._started = None
        self._last_seconds = self._before

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """For what is not training: the clock stands still inside."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    @property
    def seconds(self) -> float:
        """Seconds of training. On an accelerator work is queued, so the clock is right only after a wait for
        the device; that would slow training down, and is done at most every two seconds."""
        if self._started is None:
            return self._before
        now = time.perf_counter()
        if self.device.type == "cpu" or now - self._last_read > SECONDS_BETWEEN_SYNCHRONISATIONS:
            self._synchronise()
            self._last_read = time.perf_counter()
            self._last_seconds = self._before + self._last_read - self._started
        return self._last_seconds

    def _synchronise(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        elif self.device.type == "mps":
            torch.mps.synchronize()
