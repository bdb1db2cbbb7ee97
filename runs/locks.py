"""Locks that processes on one machine share, as files."""

import fcntl
import shutil
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


@contextmanager
def filling(folder: Path, report: Callable[[str], None]) -> Iterator[None]:
    """Locks a folder while the caller fills it, after other processes that do; empties it first if an earlier caller
    did not finish. Raises OSError if the folder cannot be locked."""
    with locked(folder.with_name(f"{folder.name}.filling"), report) as mark:
        mark.seek(0)
        if mark.read():
            shutil.rmtree(folder, ignore_errors=True)
        mark.write("x")
        mark.flush()
        yield
        mark.truncate(0)
