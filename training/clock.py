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
        self._synchronised = 0.0

    def set(self, seconds: float) -> None:
        """Go on from where a run was when it was interrupted; the clock stands still."""
        self._before = seconds

    def start(self) -> None:
        self._synchronise()
        self._started = self._synchronised = time.perf_counter()

    def stop(self) -> None:
        self._synchronise()
        if self._started is not None:
            self._before += time.perf_counter() - self._started
        self._started = None

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
        """Seconds of training. On an accelerator work is queued, and the clock is right only after a wait for the
        device. That would slow training down: it is done every two seconds, so that the queue stays short."""
        if self._started is None:
            return self._before
        if time.perf_counter() - self._synchronised > SECONDS_BETWEEN_SYNCHRONISATIONS:
            self._synchronise()
            self._synchronised = time.perf_counter()
        return self._before + time.perf_counter() - self._started

    def _synchronise(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        elif self.device.type == "mps":
            torch.mps.synchronize()
