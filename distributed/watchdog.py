"""Ends this process if another one of its run is lost: otherwise it would wait for that one without end."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch.distributed as dist

SECONDS_PER_SIGN = 2.0  # of life
SECONDS_WITHOUT_SIGN = 20.0  # after which a process is lost: it was stopped, or its machine is not reachable
SECONDS_WITHOUT_STEP = 50.0  # at least, after which a process hangs; ten times the longest step if that is more
SECONDS_OF_FIRST_STEP = 600.0


class Watchdog:
    """Exchanges signs of life with the other processes, through torchrun's store.

    A sign has the number of steps, and whether the process is busy with something that may take long. The run hangs if
    no process has made a step for a long time and none is busy.
    """

    def __init__(self) -> None:
        self.n_steps = 0
        self.is_busy = False
        self._longest = 0.0  # seconds of a step
        self._last_step = time.monotonic()

    def progressed(self) -> None:
        """Count a step."""
        now = time.monotonic()
        if self.n_steps > 1 and not self.is_busy:
            self._longest = max(self._longest, now - self._last_step)
        self.n_steps, self._last_step = self.n_steps + 1, now

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Marks work of this process that may take long, such as compiling or saving."""
        self.is_busy = True
        try:
            yield
        finally:
            self._last_step = time.monotonic()
            self.is_busy = False

    @contextmanager
    def watching(self, rank: int, n: int, connect: Callable[[], dist.Store]) -> Iterator["Watchdog"]:
        """Exchanges signs in a thread inside the context; `connect` gives it a store of its own."""
        ended = threading.Event()
        thread = threading.Thread(target=self._watch, args=(rank, n, connect, ended), name="watchdog", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            ended.set()
            thread.join()

    def _watch(self, rank: int, n: int, connect: Callable[[], dist.Store], ended: threading.Event) -> None:
        keys = [f"sign {other}" for other in range(n)]
        signs, heard = [""] * n, [time.monotonic()] * n
        try:
            store = connect()
            n_signs = 0
            while not ended.wait(SECONDS_PER_SIGN):
                n_signs += 1
                store.set(keys[rank], f"{n_signs} {self.n_steps} {int(self.is_busy)}")
                now = time.monotonic()
                for other, key in enumerate(keys):
                    sign = store.get(key).decode() if store.check([key]) else ""
                    if sign != signs[other]:
                        signs[other], heard[other] = sign, now
                    elif now - heard[other] > SECONDS_WITHOUT_SIGN and not sign.endswith("ended"):
                        _end(f"process {other} of {n} does not answer")
                patience = max(SECONDS_WITHOUT_STEP, 10 * self._longest) if self.n_steps > 2 else SECONDS_OF_FIRST_STEP
                is_any_busy = self.is_busy or any(sign.endswith(" 1") for sign in signs)
                if now - self._last_step > patience and not is_any_busy:
                    _end(f"no step for {patience:.0f} s: a process hangs")
            store.set(keys[rank], "ended")
        except RuntimeError as error:  # dist.DistError is one
            if not ended.is_set():
                _end(f"lost the connection to torchrun ({str(error).splitlines()[0]})")


def _end(reason: str) -> None:
    """End the process at once, because its main thread waits in an operation that cannot be interrupted."""
    print(f"stopped: {reason}; the last checkpoint is whole", file=sys.stderr, flush=True)
    os._exit(1)
