"""labml-app's data in the store, as JSON. labml-app itself uses MongoDB with pickled values."""

import json
from typing import Any

import numpy as np
from labml_app import db
from labml_db import Index, Key, Model

from board.store import Store


def connect(store: Store) -> None:
    """Replaces labml-app's connection to MongoDB."""
    Model.set_db_drivers([Driver(model, store) for model in db.models])
    Index.set_db_drivers([Driver(index, store) for index in db.indexes])
    # it would store one per refresh of a page
    db.user.User.generate_session_token = lambda self, token: "local"
    fill()


def fill() -> None:
    """Add the projects and the user that labml-app needs, if the database does not have them.
    Clients send no token in the query, where labml-app reads it, so the empty token becomes an
    alias of the local user's project."""
    for token in (db.settings.FLOAT_PROJECT_TOKEN, db.settings.SAMPLES_PROJECT_TOKEN):
        db.project.create_project(token, token)
    user = db.user.get_or_create_user("local", is_local_user=True)
    db.project.ProjectIndex.set("", user.projects[0])
    # labml's page deletes the runs of its user
    db.user.TokenOwnerIndex.set("", user.key)


class Driver:
    """The objects of one of labml-app's models, as JSON, or one of its indexes: what labml_db calls
    of its drivers."""

    def __init__(self, kind: type[Model] | type[Index], store: Store):
        self.model_name = self.index_name = kind.__name__
        self.store = store
        self._is_index = issubclass(kind, Index)  # which maps names to keys of objects
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

    load_dict = get
    save_dict = set
    mload_dict = mget
    msave_dict = mset


def encode(data: Any) -> str:
    """Convert labml-app's data to JSON. A key, set or NumPy array becomes a dictionary with one
    key, such as {"$set": [...]}; a dictionary that has such a key gets a second $. Raises TypeError
    for any other type than these and JSON's."""
    text = json.dumps(_tagged(data), ensure_ascii=False)
    # half a surrogate pair could be stored, but not sent
    return text.encode("utf-8", "replace").decode()


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
    match tag:
        case "$key":
            return Key(content)
        case "$set":
            return set(content)
        case "$array":
            return np.array(content)

    return {tag[1:]: content}
