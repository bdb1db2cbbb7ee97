"""Training time, which the budget in seconds limits. Evaluating, compiling and saving stop the
clock."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

SECONDS_BETWEEN_SYNCHRONIZATIONS = 2.0


class TrainingClock:
    """Counts the seconds between `start` and `stop`."""

    def __init__(self, device: torch.device):
        self.device = device
        # seconds up to the last start; of the earlier run, if it is resumed
        self.before = 0.0
        self._started: float | None = None
        self._read = 0.0  # the time of the last reading
        self._synchronized = 0.0

    def start(self) -> None:
        self._synchronize()
        self._started = self._read = self._synchronized = time.perf_counter()

    def stop(self) -> None:
        self._synchronize()
        self.before = self.seconds
        self._started = None

    def skip(self) -> None:
        """Leave out the time since the last reading: the process was paused meanwhile."""
        if self._started is not None:
            self._started += time.perf_counter() - self._read

    @contextmanager
    def stopped(self) -> Iterator[None]:
        self.stop()
        try:
            yield
        finally:
            self.start()

    @property
    def seconds(self) -> float:
        """Seconds of training. Accelerators queue work, so the clock is exact only after a
        synchronization.

        Synchronizing slows training down, so it happens at most every two seconds, which also keeps
        the queue short.
        """
        if self._started is None:
            return self.before
        if time.perf_counter() - self._synchronized > SECONDS_BETWEEN_SYNCHRONIZATIONS:
            self._synchronize()
            self._synchronized = time.perf_counter()
        self._read = time.perf_counter()
        return self.before + self._read - self._started

    def _synchronize(self) -> None:
        if self.device.type != "cpu":
            torch.accelerator.synchronize(self.device)
