"""Whether a file may be used as the dashboard's database: it is ours and whole."""

import contextlib
import shutil
import sqlite3
import tempfile
from pathlib import Path

TABLE = "entries (namespace TEXT, key TEXT, value TEXT, PRIMARY KEY (namespace, key)) WITHOUT ROWID"


class StoreError(RuntimeError):
    """The file is not a database of the dashboard, or another dashboard uses it. The message is one line."""


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of a file; None if it cannot be found."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


def check(path: Path) -> None:
    """Read a database without changing it. Raises StoreError if it is damaged or has other tables than ours. A journal
    or log that a killed process leaves belongs to it; SQLite would apply it to the file, so a copy is read."""
    if path.is_dir():
        raise StoreError("it is a folder")
    if not path.exists() or path.stat().st_size == 0:
        return
    with tempfile.TemporaryDirectory() as folder:
        for file in filter(Path.exists, (path, Path(f"{path}-journal"), Path(f"{path}-wal"))):
            shutil.copy(file, folder)
        try:
            with contextlib.closing(sqlite3.connect(Path(folder) / path.name)) as copy:
                (answer,) = copy.execute("PRAGMA quick_check(1)").fetchone()
                tables = [sql for (sql,) in copy.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")]
        except sqlite3.DatabaseError as error:
            raise StoreError(f"it is damaged or not a database: {error}") from error
    if answer != "ok":
        raise StoreError("it is damaged")
    if tables and tables != [f"CREATE TABLE {TABLE}"]:
        raise StoreError("it is not a dashboard's database")
