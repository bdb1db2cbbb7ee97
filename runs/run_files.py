"""Reads a run's files and checks their content, or reads on where the last reading ended."""

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runs.errors import InputError
from runs.reading import read_bytes
from runs.schema import checked


class RunFolderError(InputError):
    """A run's folder cannot be written or read; the message is one line for the user."""


def read_content(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except OSError as error:
        raise RunFolderError(f"cannot read {path} ({error.strerror})") from error


def read_object(path: Path, schema: Mapping[str, Any]) -> dict[str, Any]:
    return _parsed(read_content(path), schema, str(path))


def read_rows(
    path: Path, schema: Mapping[str, Any], size: int | None = None
) -> list[dict[str, Any]]:
    """The rows in the first `size` bytes of a file, or in all of it except a line that is still
    being written."""
    content = read_content(path) if path.exists() else b""
    if size is not None and (
        len(content) < size or not content[:size].endswith(b"\n" if size else b"")
    ):
        raise RunFolderError(
            f"{path} is damaged: it ends before the last row that the checkpoint counts"
        )
    lines = content[:size].split(b"\n")[:-1]
    return [
        _parsed(line, schema, f"line {number} of {path}")
        for number, line in enumerate(lines, start=1)
    ]


def _parsed(content: bytes, schema: Mapping[str, Any], source: str) -> dict[str, Any]:
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RunFolderError(f"{source} is damaged: it is not JSON") from error
    return checked(parsed, schema, source, RunFolderError)


def read_piece(path: Path, start: int, limit: int, *, may_split: bool = False) -> dict[str, Any]:
    """The next whole lines of a file in at most `limit` bytes, and the bytes at which they begin
    and end.

    The piece is empty if there are none, or if `path` is not a regular file. A line longer than
    `limit` is returned only if it `may_split`. If the file is shorter than `start`, because a
    resumed run has cut it, its beginning is returned.
    """
    content = b""
    try:
        # Without O_NONBLOCK, opening a pipe waits for a writer.
        with open(
            path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)
        ) as file:
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
