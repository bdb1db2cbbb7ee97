"""Reads files that grow by whole lines, each time from the byte at which the last reading ended."""

import os
import stat
from pathlib import Path
from typing import Any


def read_piece(path: Path, start: int, limit: int, *, may_split: bool = False) -> dict[str, Any]:
    """The next whole lines of a file in at most `limit` bytes, and the bytes at which they begin and end.

    The piece is empty if there are none, or if `path` is not a regular file. A line longer than `limit` is returned
    only if it `may_split`. If the file is shorter than `start`, because a resumed run has cut it, its beginning is
    returned.
    """
    content = b""
    try:
        # Without O_NONBLOCK, opening a pipe waits for a writer.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            status = os.fstat(file.fileno())
            if stat.S_ISREG(status.st_mode):
                start = start if start <= status.st_size else 0
                file.seek(start)
                content = file.read(limit)
    except OSError:
        pass
    n_whole = content.rfind(b"\n") + 1
    content = content if may_split and not n_whole else content[:n_whole]
    return {"from": start, "to": start + len(content), "text": content.decode("utf-8", "replace")}
