"""Ends this process if another one of its run is lost: otherwise it would wait for that one without end."""

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count

import torch.distributed as dist

# Time is counted in rounds, because a clock goes on while all processes are paused.
SECONDS_PER_ROUND = 2.0
ROUNDS_WITHOUT_SIGN = 10  # after which a process is lost: it was stopped, or its machine is not reachable
ROUNDS_WITHOUT_SIGN_IF_BUSY = 150  # the same if it was busy: writing gigabytes can stop its threads for long
ROUNDS_WITHOUT_STEP = 25  # after which a process hangs; ten times the longest step if that is more
ROUNDS_OF_FIRST_STEP = 300  # the same for the first steps, and for processes that have not joined; no step takes longer


class Watchdog:
    """Exchanges signs of life with the other processes, through torchrun's store, and counts its own steps.

    A sign says whether the process is busy with something that may take long. This process is stuck if it has made no
    step for many rounds and no process is busy.
    """

    def __init__(self) -> None:
        self.n_steps = 0
        self.is_busy = False
        self._signs: list[str] = []  # the latest of each process

    def progressed(self) -> None:
        """Count a step."""
        self.n_steps += 1

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Marks work of this process that may take long, such as compiling or saving."""
        self.is_busy = True
        try:
            yield
        finally:
            self.is_busy = False

    @contextmanager
    def watching(self, rank: int, n: int, store: dist.Store) -> Iterator["Watchdog"]:
        """Exchanges signs inside the context, through a store that nothing else uses."""
        self._signs, ended = [""] * n, threading.Event()
        exchange = threading.Thread(target=self._exchange, args=(rank, n, store, ended), name="signs", daemon=True)
        watch = threading.Thread(target=self._watch, args=(rank, n, ended), name="watchdog", daemon=True)
        exchange.start()
        watch.start()
        try:
            yield self
        finally:
            ended.set()
            watch.join()
            exchange.join(SECONDS_PER_ROUND)  # it may wait for a store that does not answer

    def _exchange(self, rank: int, n: int, store: dist.Store, ended: threading.Event) -> None:
        keys = [f"sign {other}" for other in range(n)]
        try:
            for number in count():
                store.set(keys[rank], f"{number} busy" if self.is_busy else f"{number}")
                self._signs = [store.get(key).decode() if store.check([key]) else "" for key in keys]
                if ended.wait(SECONDS_PER_ROUND):
                    break
            store.set(keys[rank], "ended")
        except RuntimeError as error:  # dist.DistError is one
            if not ended.is_set():
                _end(f"lost the connection to torchrun ({str(error).splitlines()[0]})")

    def _watch(self, rank: int, n: int, ended: threading.Event) -> None:
        """Count the rounds, without the store, which may not answer."""
        rounds = Rounds(rank, n)
        while not ended.wait(SECONDS_PER_ROUND):
            if reason := rounds.fault(self._signs, self.n_steps, self.is_busy):
                _end(reason)


class Rounds:
    """Counts rounds without a new sign of each process, and without a step."""

    def __init__(self, rank: int, n: int):
        self.rank, self.n = rank, n
        self._signs, self._without_sign = [""] * n, [0] * n
        self._n_steps = self._without_step = self._longest = 0

    def fault(self, signs: Sequence[str], n_steps: int, is_busy: bool) -> str | None:
        """Count a round; returns the reason to end this process, if any."""
        for other, sign in enumerate(signs):
            is_old = sign == self._signs[other] and sign != "ended"
            self._without_sign[other] = self._without_sign[other] + 1 if is_old else 0
            if self._without_sign[other] > _patience(sign):
                name = "torchrun" if other == self.rank else f"process {other} of {self.n}"
                return f"{name} does not answer" if sign else f"{name} has not started"
        self._signs = list(signs)
        if is_busy or any(sign.endswith("busy") for sign in signs):
            self._without_step = 0  # the others wait
        elif n_steps > self._n_steps:
            self._longest = max(self._longest, self._without_step) if self._n_steps > 1 else 0
            self._without_step = 0
        else:
            self._without_step += 1
        self._n_steps = n_steps
        patience = max(ROUNDS_WITHOUT_STEP, 10 * self._longest) if n_steps > 2 else ROUNDS_OF_FIRST_STEP
        if self._without_step > min(patience, ROUNDS_OF_FIRST_STEP):
            return f"no step for {self._without_step * SECONDS_PER_ROUND:.0f} s: a process hangs"
        return None


def _patience(sign: str) -> int:
    """The number of rounds to wait for the next sign of a process."""
    if not sign:
        return ROUNDS_OF_FIRST_STEP
    return ROUNDS_WITHOUT_SIGN_IF_BUSY if sign.endswith("busy") else ROUNDS_WITHOUT_SIGN


def _end(reason: str) -> None:
    """End the process at once, because its main thread waits in an operation that cannot be interrupted."""
    print(f"stopped: {reason}; the last checkpoint is whole", file=sys.stderr, flush=True)
    os._exit(1)
