"""The dashboard's database: other files are refused untouched, and one dashboard uses it at a time."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from board.store import Store, StoreError
from runs.files import ROOT


def killed(path, *lines):
    """Run a program with a database as its argument, which kills itself at the end."""
    program = "\n".join(["import os, sqlite3, sys", *lines, "os.kill(os.getpid(), 9)"])
    assert (
        subprocess.run([sys.executable, "-c", program, str(path)], cwd=ROOT).returncode
        == -9
    )


def test_a_file_that_is_not_a_database_is_refused(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a database at all, but long enough to have a header" * 10)
    check_is_refused(path, "not a database")


def test_a_log_of_another_program_is_refused_with_its_file(tmp_path):
    """The table is in the write-ahead log only, which the other program's kill has left."""
    path = tmp_path / "other.sqlite3"
    killed(
        path,
        "connection = sqlite3.connect(sys.argv[1])",
        "connection.execute('PRAGMA journal_mode = WAL')",
        "connection.execute('CREATE TABLE letters (a TEXT)')",
        "connection.commit()",
    )

    assert tmp_path / "other.sqlite3-wal" in contents(path)

    check_is_refused(path, "not a dashboard's database")


def test_a_database_of_an_earlier_version_with_its_log_is_opened(tmp_path):
    path = tmp_path / "store.sqlite3"
    killed(
        path,
        "from board.store import TABLE",
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)",
        "connection.execute('PRAGMA journal_mode = WAL')",
        "connection.execute(f'CREATE TABLE {TABLE}')",
        "connection.execute('INSERT INTO entries VALUES (?, ?, ?)', ('n', 'key', 'old'))",
    )
    store = Store(path)

    assert store.get("n", "key") == "old"

    store.close()

    assert not Path(f"{path}-wal").exists()


def test_a_kill_within_a_transaction_leaves_what_was_stored_before(tmp_path):
    path = tmp_path / "store.sqlite3"
    killed(
        path,
        "from pathlib import Path; from board.store import Store; store = Store(Path(sys.argv[1]))",
        "store._connection.execute('PRAGMA cache_size = 1')",  # writes to the file before the end
        "[store.put('n', str(i), 'old' * 100) for i in range(100)]",
        "store._connection.execute('BEGIN')",
        "[store.put('n', str(i), 'new' * 100) for i in range(100)]",
    )

    assert Path(f"{path}-journal").stat().st_size > 0

    store = Store(path)

    assert {store.get("n", str(i)) for i in range(100)} == {"old" * 100}


def test_a_database_that_is_damaged_inside_is_refused(tmp_path):
    path = tmp_path / "store.sqlite3"
    store = Store(path)
    with store.transaction():
        for i in range(1_000):
            store.put("n", str(i), "x" * 100)

    store.close()
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 8_192] = b"\xff" * 8_192
    path.write_bytes(content)
    check_is_refused(path, "damaged")


def contents(path):
    """The files whose names begin with that of a database."""
    return {file: file.read_bytes() for file in path.parent.glob(f"{path.name}*")}


def check_is_refused(path, reason):
    before = contents(path)
    with pytest.raises(StoreError, match=reason):
        Store(path)

    assert contents(path) == before


@pytest.mark.parametrize("how", ["deleted", "deleted with its folder", "replaced"])
def test_a_file_belongs_to_one_store_and_is_noticed_if_it_is_deleted_or_replaced(
    tmp_path, how
):
    path = tmp_path / "folder" / "store.sqlite3"
    other = tmp_path / "other.sqlite3"
    store = Store(path)
    if how == "deleted":  # once, because SQLite waits for half a second
        check_is_refused(path, "another dashboard uses it")

    store.put("n", "key", "old")

    assert not store.reopened()

    path.unlink()

    if how == "replaced":
        new = Store(other)
        new.put("n", "key", "new")
        new.close()
        other.rename(path)
    elif how == "deleted with its folder":
        shutil.rmtree(path.parent)

    assert store.reopened()

    check_is_refused(path, "another dashboard uses it")

    assert store.get("n", "key") == ("new" if how == "replaced" else None)

    store.put("n", "more", "1")
    store.close()

    assert Store(path).get("n", "more") == "1"
