"""Reads regular files only."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


def without_waiting(path: str, flags: int) -> int:
    """Opens a file. Without O_NONBLOCK, opening a pipe waits for a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a regular file. Raises OSError for everything else, such as a pipe or a device."""
    try:
        file = open(path, "rb", opener=without_waiting)  # noqa: SIM115
    except ValueError as error:  # a null byte or a surrogate in the path
        raise OSError(errno.EINVAL, "not a valid path") from error

    with file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        yield file


def read_bytes(path: Path, limit: int = 2**28) -> bytes:
    """Read a regular file of at most `limit` bytes. Raises OSError."""
    with opened(path) as file:
        if os.fstat(file.fileno()).st_size > limit:
            raise OSError(errno.EFBIG, f"larger than {limit:,} bytes")
        return file.read()
