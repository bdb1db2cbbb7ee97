import sqlite3
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from board.store import Store, decode, encode
from tests.conftest import ROOT

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


TAGS = st.sampled_from(["$key", "$set", "$array", "$", "$$", "$$key"])


@given(value=PLAIN | st.dictionaries(TAGS, PLAIN, max_size=2))
def test_what_json_can_say_comes_back_as_it_was(value):
    assert decode(encode(value)) == value


def test_keys_sets_and_arrays_come_back_as_what_they_were():
    from labml_db import Key

    value = {"key": Key("Run:1"), "set": {"a", "b"}, "array": np.array([1.5, 2.0]), "mean": np.float64(3.5)}
    back = decode(encode(value))
    assert back["key"] == value["key"]
    assert isinstance(back["key"], Key)
    assert back["set"] == value["set"]
    assert isinstance(back["array"], np.ndarray)
    assert back["array"].tolist() == [1.5, 2.0]
    assert back["mean"] == 3.5


def test_what_cannot_be_kept_is_refused_rather_than_pickled():
    with pytest.raises(TypeError, match="cannot keep a object"):
        encode({"what": object()})


def test_namespaces_are_apart_and_a_deleted_key_is_gone(tmp_path):
    store = Store(tmp_path / "store.sqlite3")
    store.put("a", [("key", "1"), ("other", "2")])
    store.put("b", [("key", "3")])
    assert (store.get("a", "key"), store.get("b", "key")) == ("1", "3")
    store.delete("a", "key")
    assert store.get("a", "key") is None
    assert store.all("a") == [("other", "2")]


def test_what_was_put_survives_a_kill(tmp_path):
    """The process ends by SIGKILL right after `put`: no close, no flush of its own."""
    path = tmp_path / "store.sqlite3"
    program = (
        "import os, sys; from pathlib import Path; from board.store import Store\n"
        "store = Store(Path(sys.argv[1]))\n"
        "[store.put('n', [(str(i), str(i * i))]) for i in range(100)]\n"
        "os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", program, str(path)], cwd=ROOT).returncode == -9
    assert len(Store(path).all("n")) == 100


def test_a_file_that_is_no_database_is_refused(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a database at all, but long enough to have a header" * 10)
    with pytest.raises(sqlite3.Error):
        Store(path)
