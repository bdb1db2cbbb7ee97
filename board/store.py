"""labml-app's data in one SQLite file, as JSON. labml-app itself uses MongoDB with pickled values."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from labml_db import Index, Key, Model

from board.database_file import TABLE, StoreError, check, identity


class Store:
    """Strings by namespace and key, in one file, for one thread. They survive a kill of the process after `put`."""

    def __init__(self, path: Path):
        """Open the file, or create it. Raises StoreError if it is not ours, before anything in it has changed."""
        self.path = path
        self._open()

    def _open(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            check(self.path)
            self._connection = sqlite3.connect(self.path, isolation_level=None, timeout=0.5)
            # With a rollback journal, everything is in the file itself between transactions, so the file can be
            # replaced. A write-ahead log, which earlier versions had, helps only several readers.
            for words in ("journal_mode = TRUNCATE", "synchronous = NORMAL", "locking_mode = EXCLUSIVE"):
                self._connection.execute(f"PRAGMA {words}")
            with self.transaction("EXCLUSIVE"):  # and the lock stays until the connection is closed
                self._connection.execute(f"CREATE TABLE IF NOT EXISTS {TABLE}")
        except (OSError, sqlite3.Error) as error:
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
    def transaction(self, kind: str = "") -> Iterator[None]:
        """A transaction: everything written inside is kept, or nothing if an exception is raised."""
        with self._connection:  # commits or rolls back
            self._connection.execute(f"BEGIN {kind}")
            yield

    def close(self) -> None:
        self._connection.close()


class Driver:
    """The objects of one of labml-app's models, as JSON, or one of its indexes: what labml_db calls of its drivers."""

    def __init__(self, kind: type[Model] | type[Index], store: Store):
        self.model_name = self.index_name = kind.__name__
        self.store, self._is_index = store, issubclass(kind, Index)  # an index maps names to keys of objects
        self._namespace = f"index {kind.__name__}" if self._is_index else kind.__name__

    def get(self, key: str) -> Any:
        text = self.store.get(self._namespace, key)
        return text if text is None or self._is_index else decode(text)

    def set(self, key: str, value: Any) -> None:
        self.store.put(self._namespace, key, value if self._is_index else encode(value))

    def mget(self, keys: list[str]) -> list[Any]:
        return [self.get(key) for key in keys]

    def mset(self, keys: list[str], values: list[Any]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def delete(self, key: str) -> None:
        self.store.delete(self._namespace, key)

    load_dict, save_dict, mload_dict, msave_dict = get, set, mget, mset


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
