"""Values that processes exchange through torchrun's store, however long it takes; and signs of life
meanwhile.

The store listens on all interfaces, so nothing that is read from it is executed or trusted: values
are JSON.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch.distributed as dist

from distributed.launch import started_by_torchrun
from runs.errors import StoppedError
from runs.find import find_started_by
from runs.run_folder import RunFolder
from training.checkpoint import has_checkpoint

SECONDS_PER_BEAT = 1.0
# after which a process is lost; not in seconds, because a clock goes on while all are paused
SILENT_BEATS = 40
SECONDS_TO_END = 10.0  # for the main thread of a process, if another one is lost
FOREIGN = "torchrun's store has a value that no process of this run has written"


class Meeting:
    """Exchanges values, such as a text's hash. Waits for the others as long as they live, whatever
    they are doing.

    A thread of each process counts in the store. It also watches torchrun and the count of the next
    process. If one of them is lost, it ends this process, unless the main thread does that first.
    """

    def __init__(self, rank: int, n: int):
        self.rank = rank
        self.n = n
        self._store = store_of_attempt()
        self._numbers = count()
        self._lost = ""
        self._ended = threading.Event()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Gives signs of life inside the context, at whose end the processes wait for each other."""
        beats = threading.Thread(target=self._beat, name="signs of life", daemon=True)
        beats.start()
        try:
            yield
            # the first process, which may hold the store, may have ended
            with suppress(RuntimeError):
                self.of_all(None)
        finally:
            self._ended.set()
            beats.join(SECONDS_PER_BEAT)  # it may wait for a store that does not answer
            with suppress(RuntimeError):
                self._store.set(f"ended {self.rank}", "")

    def of_all(self, value: Any) -> list[Any]:
        """The values of all processes, by rank, as JSON gives them back. Raises StoppedError if
        another process, or torchrun, is lost."""
        number = next(self._numbers)
        self._store.set(f"{number} {self.rank}", json.dumps(value))
        values = [self._received(f"{number} {rank}") for rank in range(self.n)]
        # all processes are here, so they have read it
        self._store.delete_key(f"{number - 1} {self.rank}")
        return values

    def _received(self, key: str) -> Any:
        pause = 0.001  # seconds; it grows, because a conversion may take hours
        while not self._store.check([key]):  # `wait` would not let Ctrl-C through
            if self._lost:
                raise StoppedError(self._lost)
            time.sleep(pause)
            pause = min(1.5 * pause, 0.1)
        try:
            return json.loads(self._store.get(key))
        except ValueError as error:
            raise StoppedError(FOREIGN) from error

    def _beat(self) -> None:
        try:
            self._watch(store_of_attempt(), (self.rank + 1) % self.n)
        except RuntimeError:  # dist.DistError is one
            self._lost = _stopped("torchrun does not answer")
        if self._lost and not self._ended.wait(SECONDS_TO_END):
            print(f"stopped: {self._lost}", file=sys.stderr, flush=True)
            # the main thread waits in an operation that cannot be interrupted
            os._exit(1)

    def _watch(self, store: dist.Store, other: int) -> None:
        """Count until this process ends or something is lost."""
        parent = os.getppid()
        seen = 0
        n_silent = 0
        while not self._lost and not self._ended.wait(SECONDS_PER_BEAT):
            store.add(f"beats {self.rank}", 1)
            beats = store.add(f"beats {other}", 0)
            # 0: it has not started yet
            n_silent = n_silent + 1 if beats == seen > 0 else 0
            seen = beats
            if os.getppid() != parent:
                self._lost = _stopped("torchrun has ended")
            elif store.check([f"ended {other}"]):
                self._lost = _stopped("another process of this run has ended")
            elif n_silent > SILENT_BEATS:
                self._lost = _stopped(f"process {other} of {self.n} does not answer")


def torchrun_id() -> str | None:
    """Identifies the torchrun command that has started this process, also when it restarts its
    processes.

    The first caller draws the name, and torchrun's store keeps it: --rdzv-id may be that of an
    earlier command.
    """
    if not started_by_torchrun():
        return None
    return _store_of_torchrun().compare_set("folio launch", "", uuid4().hex).decode()


def restarted_run(logs: Path) -> RunFolder | None:
    """The run to continue if torchrun has restarted its processes (`--max-restarts`)."""
    run = find_started_by(torchrun_id(), logs)
    return run if run and has_checkpoint(run.checkpoints) else None


def store_of_attempt() -> dist.Store:
    """A new connection to torchrun's store, with keys of its own after each restart."""
    return dist.PrefixStore(
        f"folio {os.environ['TORCHELASTIC_RESTART_COUNT']}", _store_of_torchrun()
    )


def _store_of_torchrun() -> dist.Store:
    return next(dist.rendezvous("env://"))[0]


def _stopped(reason: str) -> str:
    return f"{reason}; the last checkpoint is whole"
