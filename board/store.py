"""Strings in one SQLite file. Before use, it is checked: it must be ours, and not damaged."""

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

TABLE = "entries (namespace TEXT, key TEXT, value TEXT, PRIMARY KEY (namespace, key)) WITHOUT ROWID"


class StoreError(RuntimeError):
    """The file is not a database of the dashboard, or another dashboard uses it. The message is one
    line."""


class Store:
    """Strings by namespace and key, in one file, for one thread. They survive a kill of the process
    after `put`."""

    def __init__(self, path: Path):
        """Open the file, or create it. Raises StoreError if it is not ours, before anything in it
        has changed."""
        self.path = path
        self._open()

    def _open(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            check(self.path)
            self._connection = sqlite3.connect(
                self.path, isolation_level=None, timeout=0.5
            )
            # With a rollback journal, everything is in the file itself between transactions, so the
            # file can be replaced. A write-ahead log, which earlier versions had, helps only
            # several readers.
            self._connection.execute("PRAGMA journal_mode = TRUNCATE")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            with self.transaction(
                "EXCLUSIVE"
            ):  # and the lock stays until the connection is closed
                self._connection.execute(f"CREATE TABLE IF NOT EXISTS {TABLE}")
        except (OSError, sqlite3.Error) as error:
            # a path may contain the word, too
            is_in_use = isinstance(error, sqlite3.Error) and "locked" in str(error)
            raise StoreError(
                "another dashboard uses it" if is_in_use else str(error)
            ) from error

        self._identity = identity(self.path)

    def reopened(self) -> bool:
        """Whether the file was deleted or replaced; if so, the file of that name is open now.
        Raises StoreError."""
        if identity(self.path) == self._identity:
            return False
        self.close()
        self._open()
        return True

    def get(self, namespace: str, key: str) -> str | None:
        sql = "SELECT value FROM entries WHERE namespace = ? AND key = ?"
        row = self._connection.execute(sql, (namespace, key)).fetchone()
        return row and row[0]

    def keys(self, namespace: str) -> list[str]:
        sql = "SELECT key FROM entries WHERE namespace = ?"
        return [key for (key,) in self._connection.execute(sql, (namespace,))]

    def put(self, namespace: str, key: str, value: str) -> None:
        self._connection.execute(
            "INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", (namespace, key, value)
        )

    def delete(self, namespace: str, key: str) -> None:
        self._connection.execute(
            "DELETE FROM entries WHERE namespace = ? AND key = ?", (namespace, key)
        )

    @contextlib.contextmanager
    def transaction(self, kind: str = "") -> Iterator[None]:
        """A transaction: everything written inside is kept, or nothing if an exception is raised."""
        with self._connection:  # commits or rolls back
            self._connection.execute(f"BEGIN {kind}")
            yield

    def close(self) -> None:
        self._connection.close()


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of a file; None if it cannot be found."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


def check(path: Path) -> None:
    """Read a database without changing it. Raises StoreError if it is damaged or has other tables
    than ours. A journal or log that a killed process leaves belongs to it; SQLite would apply it to
    the file, so a copy is read."""
    if path.is_dir():
        raise StoreError("it is a folder")
    if not path.exists() or path.stat().st_size == 0:
        return
    with tempfile.TemporaryDirectory() as folder:
        for file in filter(
            Path.exists, (path, Path(f"{path}-journal"), Path(f"{path}-wal"))
        ):
            shutil.copy(file, folder)
        try:
            with contextlib.closing(sqlite3.connect(Path(folder) / path.name)) as copy:
                answer = copy.execute("PRAGMA quick_check(1)").fetchone()
                tables = copy.execute(
                    "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"
                )
                definitions = tables.fetchall()
        except sqlite3.DatabaseError as error:
            raise StoreError(f"it is damaged or not a database: {error}") from error

    if answer != ("ok",):
        raise StoreError("it is damaged")
    if definitions and definitions != [(f"CREATE TABLE {TABLE}",)]:
        raise StoreError("it is not a dashboard's database")
