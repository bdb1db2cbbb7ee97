"""labml-app's data in one SQLite file, as JSON. labml-app itself uses MongoDB with pickled values.

labml_db needs drivers for models and for indexes. Each is a dictionary in its own namespace of the file.
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from labml_db import Index, Key, Model
from labml_db.driver import DbDriver
from labml_db.index_driver import IndexDbDriver

from board.database_file import TABLE, StoreError, check, identity


class Store:
    """Strings by namespace and key, in one file, for one thread. They survive a kill of the process after `put`."""

    def __init__(self, path: Path):
        """Open the file, or create it. Raises StoreError if it is not ours, before anything in it has changed."""
        self.path = path
        self._open()

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        check(self.path)
        self._connection = sqlite3.connect(self.path, isolation_level=None, timeout=0.5)
        # With a rollback journal, everything is in the file itself between transactions, so the file can be replaced. A
        # write-ahead log, which earlier versions had, helps only several readers.
        try:
            for words in ("journal_mode = TRUNCATE", "synchronous = NORMAL", "locking_mode = EXCLUSIVE"):
                self._connection.execute(f"PRAGMA {words}")
            self._connection.execute("BEGIN EXCLUSIVE")  # and the lock stays until the connection is closed
            self._connection.execute(f"CREATE TABLE IF NOT EXISTS {TABLE}")
            self._connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            self._connection.close()
            raise StoreError("another dashboard uses it" if "locked" in str(error) else str(error)) from error
        self._identity = identity(self.path)

    def reopened(self) -> bool:
        """Whether the file was deleted or replaced; if so, the file of that name is open now. Raises StoreError."""
        if identity(self.path) == self._identity:
            return False
        self.close()
        self._open()
        return True

    def get(self, namespace: str, key: str) -> str | None:
        sql = "SELECT value FROM entries WHERE namespace = ? AND key = ?"
        row = self._connection.execute(sql, (namespace, key)).fetchone()
        return row[0] if row else None

    def keys(self, namespace: str) -> list[str]:
        sql = "SELECT key FROM entries WHERE namespace = ?"
        return [key for (key,) in self._connection.execute(sql, (namespace,))]

    def put(self, namespace: str, key: str, value: str) -> None:
        self._connection.execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", (namespace, key, value))

    def delete(self, namespace: str, key: str) -> None:
        self._connection.execute("DELETE FROM entries WHERE namespace = ? AND key = ?", (namespace, key))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction: everything written inside is kept, or nothing if an exception is raised."""
        with self._connection:  # commits or rolls back
            self._connection.execute("BEGIN")
            yield

    def close(self) -> None:
        self._connection.close()


class ModelDriver(DbDriver):
    """Stores the objects of one of labml-app's models."""

    def __init__(self, model: type[Model], store: Store):
        super().__init__(None, model)
        self.store = store

    def load_dict(self, key: str) -> dict[str, Any] | None:
        text = self.store.get(self.model_name, key)
        return None if text is None else decode(text)

    def mload_dict(self, key: list[str]) -> list[dict[str, Any] | None]:
        return [self.load_dict(k) for k in key]

    def save_dict(self, key: str, data: dict[str, Any]) -> None:
        self.store.put(self.model_name, key, encode(data))

    def msave_dict(self, key: list[str], data: list[dict[str, Any]]) -> None:
        for one_key, one_data in zip(key, data, strict=True):
            self.save_dict(one_key, one_data)

    def delete(self, key: str) -> None:
        self.store.delete(self.model_name, key)


class IndexDriver(IndexDbDriver):
    """Stores one of labml-app's indexes, which map names to keys of objects."""

    def __init__(self, index: type[Index], store: Store):
        super().__init__(index)
        self.store = store
        self.namespace = f"index {self.index_name}"

    def get(self, index_key: str) -> str | None:
        return self.store.get(self.namespace, index_key)

    def mget(self, index_key: list[str]) -> list[str | None]:
        return [self.get(key) for key in index_key]

    def set(self, index_key: str, model_key: str) -> None:
        self.store.put(self.namespace, index_key, model_key)

    def delete(self, index_key: str) -> None:
        self.store.delete(self.namespace, index_key)


def encode(data: Any) -> str:
    """Convert labml-app's data to JSON. A key, set or NumPy array becomes a dictionary with one key, such as {"$set":
    [...]}; a dictionary that has such a key gets a second $. Raises TypeError for any other type than these and
    JSON's."""
    text = json.dumps(_tagged(data), ensure_ascii=False)
    return text.encode("utf-8", "replace").decode()  # half a surrogate pair could be stored, but not sent


def decode(text: str) -> Any:
    """Convert the JSON of `encode` back to the data."""
    return json.loads(text, object_hook=_untagged)


def _tagged(value: Any) -> Any:
    match value:
        case dict():
            mark = "$" * _looks_tagged(value)
            return {f"{mark}{key}": _tagged(item) for key, item in value.items()}
        case list() | tuple():
            return [_tagged(item) for item in value]
        case Key():
            return {"$key": str(value)}
        case set():
            return {"$set": sorted(value)}
        case np.ndarray():
            return {"$array": value.tolist()}
    return value.item() if isinstance(value, np.generic) else value


def _looks_tagged(value: dict[str, Any]) -> bool:
    return len(value) == 1 and str(next(iter(value))).startswith("$")


def _untagged(value: dict[str, Any]) -> Any:
    if not _looks_tagged(value):
        return value
    ((tag, content),) = value.items()
    known = {"$key": Key, "$set": set, "$array": np.array}.get(tag)
    return known(content) if known else {tag[1:]: content}
