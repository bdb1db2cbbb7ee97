"""labml-app's data in SQLite: where it expects MongoDB, with pickled values, here is one file with JSON in it.

labml_db asks for two kinds of drivers, for models and for indexes. Both are a dictionary in a namespace of its own.
"""

import json
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from labml_db import Index, Key, Model
from labml_db.driver import DbDriver
from labml_db.index_driver import IndexDbDriver


class Store:
    """Texts by namespace and key, in one file. What `put` has returned from survives the end of the process."""

    def __init__(self, path: Path):
        """Raises sqlite3.Error where the file cannot be opened or is no database."""
        self._lock = threading.RLock()
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        # A write-ahead log: readers do not wait for writers, and a killed process leaves nothing half-written.
        self._run("PRAGMA journal_mode = WAL")
        self._run("PRAGMA synchronous = NORMAL")
        self._run(
            "CREATE TABLE IF NOT EXISTS entries"
            " (namespace TEXT, key TEXT, value TEXT, PRIMARY KEY (namespace, key)) WITHOUT ROWID"
        )

    def get(self, namespace: str, key: str) -> str | None:
        rows = self._run("SELECT value FROM entries WHERE namespace = ? AND key = ?", namespace, key)
        return rows[0][0] if rows else None

    @contextmanager
    def together(self) -> Iterator[None]:
        """All that is written inside is kept, or none of it."""
        with self._lock:
            if self._connection.in_transaction:
                yield
                return
            self._connection.execute("BEGIN")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def put(self, namespace: str, entries: Sequence[tuple[str, str]]) -> None:
        """Write several keys, all or none of them."""
        rows = [(namespace, key, value) for key, value in entries]
        with self.together():
            self._connection.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", rows)

    def delete(self, namespace: str, key: str) -> None:
        self._run("DELETE FROM entries WHERE namespace = ? AND key = ?", namespace, key)

    def all(self, namespace: str) -> list[tuple[str, str]]:
        return self._run("SELECT key, value FROM entries WHERE namespace = ?", namespace)

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _run(self, sql: str, *values: str) -> list[Any]:
        with self._lock:
            return self._connection.execute(sql, values).fetchall()


class ModelDriver(DbDriver):
    """A model's objects, as JSON."""

    def __init__(self, model: type[Model], store: Store):
        super().__init__(None, model)
        self.store = store

    def load_dict(self, key: str) -> dict[str, Any] | None:
        text = self.store.get(self.model_name, key)
        return None if text is None else decode(text)

    def mload_dict(self, key: list[str]) -> list[dict[str, Any] | None]:
        return [self.load_dict(k) for k in key]

    def save_dict(self, key: str, data: dict[str, Any]) -> None:
        self.store.put(self.model_name, [(key, encode(data))])

    def msave_dict(self, key: list[str], data: list[dict[str, Any]]) -> None:
        self.store.put(self.model_name, [(k, encode(d)) for k, d in zip(key, data, strict=True)])

    def delete(self, key: str) -> None:
        self.store.delete(self.model_name, str(key))

    def get_all(self) -> list[str]:
        return [key for key, _ in self.store.all(self.model_name)]


class IndexDriver(IndexDbDriver):
    """An index: from names to keys of objects."""

    def __init__(self, index: type[Index], store: Store):
        super().__init__(index)
        self.store = store
        self.namespace = f"index {self.index_name}"

    def get(self, index_key: str) -> str | None:
        return self.store.get(self.namespace, index_key)

    def mget(self, index_key: list[str]) -> list[str | None]:
        return [self.get(key) for key in index_key]

    def set(self, index_key: str, model_key: str) -> None:
        self.store.put(self.namespace, [(index_key, model_key)])

    def delete(self, index_key: str) -> None:
        self.store.delete(self.namespace, index_key)

    def get_all(self) -> list[str]:
        return [value for _, value in self.store.all(self.namespace)]


def encode(data: Any) -> str:
    """JSON of what labml-app keeps: beside JSON's own types there are keys, sets and NumPy arrays and numbers.

    These are written as dictionaries with one key, such as {"$set": [...]}; one that came in like this gets a second $.
    """
    text = json.dumps(_escaped(data), default=_tagged, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode()  # half a surrogate pair can be kept, but never be sent


def decode(text: str) -> Any:
    """What `encode` was given."""
    return json.loads(text, object_hook=_untagged)


def _escaped(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_escaped(item) for item in value]
    if not isinstance(value, dict):
        return value
    items = {key: _escaped(item) for key, item in value.items()}
    return {f"${key}": item for key, item in items.items()} if _looks_tagged(items) else items


def _looks_tagged(value: dict[str, Any]) -> bool:
    return len(value) == 1 and str(next(iter(value))).startswith("$")


def _tagged(value: Any) -> Any:
    if isinstance(value, Key):
        return {"$key": str(value)}
    if isinstance(value, set):
        return {"$set": sorted(value)}
    if isinstance(value, np.ndarray):
        return {"$array": value.tolist()}
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"cannot keep a {type(value).__name__} in the database")


def _untagged(value: dict[str, Any]) -> Any:
    if not _looks_tagged(value):
        return value
    ((tag, content),) = value.items()
    if tag == "$key":
        return Key(content)
    if tag == "$set":
        return set(content)
    return np.array(content, dtype=np.float64) if tag == "$array" else {tag[1:]: content}
