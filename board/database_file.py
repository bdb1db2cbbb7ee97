"""Whether a file may be used as the dashboard's database: nobody else uses it, and it is ours and whole."""

import contextlib
import fcntl
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO
from urllib.parse import quote

TABLE = "entries (namespace TEXT, key TEXT, value TEXT, PRIMARY KEY (namespace, key)) WITHOUT ROWID"


class StoreError(RuntimeError):
    """The file is not a database of the dashboard, or another dashboard uses it. The message is one line."""


def locked(path: Path, check: Callable[[], None]) -> IO[str]:
    """Lock the file `path` until the result is closed, and call `check` with the lock. Raises StoreError."""
    is_new = not path.exists()
    lock = open(path, "a")  # noqa: SIM115
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        check()
    except (OSError, StoreError) as error:
        lock.close()
        if is_new:
            path.unlink()
        raise error if isinstance(error, StoreError) else StoreError("another dashboard uses it") from error
    return lock


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of a file; None if it does not exist."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return stat.st_dev, stat.st_ino


def check(path: Path) -> None:
    """Read a database without changing it. Raises StoreError if it is damaged or has other tables than ours. A journal
    or log that a killed process leaves belongs to it; SQLite would apply it to the file, so a copy is read."""
    if path.is_dir():
        raise StoreError("it is a folder")
    if not path.exists() or path.stat().st_size == 0:
        return
    beside = [Path(f"{path}{suffix}") for suffix in ("-journal", "-wal")]
    with tempfile.TemporaryDirectory() as folder:
        read, mode = path, "ro&immutable=1"
        if any(file.exists() and file.stat().st_size for file in beside):
            read, mode = Path(folder) / path.name, "rw"
            for file in filter(Path.exists, (path, *beside)):
                shutil.copy(file, folder)
        try:
            with contextlib.closing(sqlite3.connect(f"file:{quote(str(read.resolve()))}?mode={mode}", uri=True)) as it:
                (answer,) = it.execute("PRAGMA quick_check(1)").fetchone()
                tables = [sql for (sql,) in it.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")]
        except sqlite3.DatabaseError as error:
            raise StoreError(f"it is damaged or not a database: {error}") from error
    if answer != "ok":
        raise StoreError("it is damaged")
    if tables and tables != [f"CREATE TABLE {TABLE}"]:
        raise StoreError("it is not a dashboard's database")
