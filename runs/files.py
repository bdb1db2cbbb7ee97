"""Writes files safely: atomically, in whole lines, and under locks; reads growing files by pieces."""

import errno
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import yaml

from runs.reading import opened

ROOT = Path(__file__).parent.parent  # of the repository


def read_piece(
    path: Path, start: int, limit: int, *, may_split: bool = False
) -> dict[str, Any]:
    """The next whole lines of a file in at most `limit` bytes, and the bytes at which they begin
    and end.

    The piece is empty if there are none, or if `path` is not a regular file. A line longer than
    `limit` is returned only if it `may_split`. If the file is shorter than `start`, because a
    resumed run has cut it, its beginning is returned.
    """
    content = b""
    try:
        with opened(path) as file:
            if start > os.fstat(file.fileno()).st_size:
                start = 0
            file.seek(start)
            content = file.read(limit)
    except OSError:
        pass

    n_whole = content.rfind(b"\n") + 1
    if n_whole or not may_split:
        content = content[:n_whole]
    return {
        "from": start,
        "to": start + len(content),
        "text": content.decode("utf-8", "replace"),
    }


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that `path` is never incomplete. Raises OSError."""
    with written_atomically(path) as temporary:
        temporary.write_bytes(content)


@contextmanager
def written_atomically(path: Path) -> Iterator[Path]:
    """A temporary path to write to. The file is then flushed to disk and renamed to `path`, or
    deleted if an error leaves the block. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")

    try:
        yield temporary
        flush(temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, content: Any, indent: int | None = None) -> None:
    """Write `to_json(content)` atomically. Raises OSError."""
    write_atomically(path, (to_json(content, indent) + "\n").encode())


def to_json(content: Any, indent: int | None = None) -> str:
    """`content` as JSON. A number that is not finite becomes null, since JSON has neither NaN nor
    Infinity."""
    finite = json.loads(json.dumps(content), parse_constant=lambda constant: None)
    return json.dumps(finite, indent=indent)


class _Dumper(yaml.SafeDumper):
    """Writes strings with line breaks in double quotes: elsewhere, PyYAML reads U+0085 back as a
    space."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = '"' if text.splitlines() not in ([], [text]) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _text)


def to_yaml(content: Any, in_one_line: bool = False) -> str:
    """`content` as YAML, with characters as they are."""
    text = yaml.dump(
        content,
        Dumper=_Dumper,
        default_flow_style=in_one_line,
        sort_keys=False,
        allow_unicode=True,
        width=10**9,
    )
    return text.removesuffix("\n").removesuffix("\n...")


def append_line(path: Path, line: str) -> None:
    """Append a whole line or nothing. Raises OSError."""
    # a file name may hold surrogates
    content = (line + "\n").encode(errors="backslashreplace")
    with open(path, "ab", buffering=0) as file:
        size = file.tell()
        try:
            if file.write(content) < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            file.truncate(size)
            raise


def flush(path: Path) -> None:
    """Wait until the content of a file, or the list of files in a folder, is on disk. Raises
    OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def reporting_os_errors(report: Callable[[str], None], what: str) -> Iterator[None]:
    """Report a full or missing disk instead of stopping the run."""
    try:
        yield
    except OSError as error:
        report(f"cannot write {what} ({error.strerror or error})")


@contextmanager
def locked(path: Path, report: Callable[[str], None]) -> Iterator[IO[str]]:
    """Create and lock a file, after other processes on this machine that hold the lock. Raises
    OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"waiting for another process that uses {path.parent}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file
