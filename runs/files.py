"""Files that are whole at every moment: atomic writes and appended lines."""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent  # of the repository


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file under a temporary name, flush it to disk, and rename it: `path` is always whole. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def append_line(path: Path, line: str) -> None:
    """Append a whole line or nothing. Raises OSError."""
    with open(path, "ab", buffering=0) as file:
        size = file.tell()
        try:
            content = (line + "\n").encode()
            if file.write(content) < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            file.truncate(size)
            raise


def flush(path: Path) -> None:
    """Wait until a file's content, or the names in a folder, are on disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def filling(folder: Path) -> Iterator[None]:
    """Locks a folder while the caller fills it; empties it first if an earlier caller died or failed while filling it.

    Waits for other processes that fill the folder. Raises OSError if the folder cannot be locked.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f"{folder.name}.filling"), "a+") as mark:
        fcntl.flock(mark, fcntl.LOCK_EX)
        mark.seek(0)
        if mark.read():
            shutil.rmtree(folder, ignore_errors=True)
        mark.write("x")
        mark.flush()
        yield
        mark.truncate(0)


@contextmanager
def reporting_os_errors(report: Callable[[str], None], what: str) -> Iterator[None]:
    """Report a full or missing disk instead of stopping the run."""
    try:
        yield
    except OSError as error:
        report(f"cannot write {what} ({error.strerror or error})")
