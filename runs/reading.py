"""Reads regular files only."""

import errno
import os
import stat
from pathlib import Path


def read_bytes(path: Path, limit: int = 2**28) -> bytes:
    """Read a regular file of at most `limit` bytes. Raises OSError for everything else, such as a
    pipe or a device."""
    try:
        # Without O_NONBLOCK, opening a pipe waits for a writer.
        with open(
            path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)
        ) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "not a regular file")
            if status.st_size > limit:
                raise OSError(errno.EFBIG, f"larger than {limit:,} bytes")
            return file.read()
    except ValueError as error:  # a null byte or a surrogate in the path
        raise OSError(errno.EINVAL, "not a valid path") from error
