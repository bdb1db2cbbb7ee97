"""Locks that processes on one machine share, as files."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def locked(path: Path, report: Callable[[str], None]) -> Iterator[IO[str]]:
    """Creates and locks a file. Waits for other processes that hold the lock. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"waiting for another process that uses {path.parent}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file
