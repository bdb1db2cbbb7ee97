import contextlib
import hashlib
import lzma
import os
import re
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data import corpus
from data.corpus import Corpus, CorpusError, load_corpus
from data.documents import stored_documents
from data.text.download import download
from tests.conftest import answer_with, written
from tests.data.text.helpers import documents_of


def whole(loaded):
    return loaded.training + loaded.validation


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=200))
def test_a_corpus_is_split_at_nine_tenths_and_keeps_its_hash_and_characters(text):
    split = Corpus.from_text("a text", text)
    assert whole(split) == text
    assert len(split.training) == int(len(text) * 0.9)
    assert split.sha256 == hashlib.sha256(text.encode()).hexdigest()
    assert split.counts == Counter(text)


def test_documents_of_a_function_are_stored_as_those_of_files(empty_cache, tmp_path):
    texts = [f"number {number}" for number in range(40)]
    stored = stored_documents("my.py:documents", iter(["", *texts, texts[0], " \n"]))
    folder = tmp_path / "texts"
    folder.mkdir()
    for text in texts:
        written(folder / text, text)

    training, validation = documents_of(stored)
    assert sorted(training + validation) == sorted(texts)
    of_files = documents_of(load_corpus(str(folder)))
    assert sorted(validation) == sorted(of_files[1])
    again = stored_documents("my.py:documents", texts)
    assert again.sha256 == stored.sha256
    assert stored_documents("my.py:documents", texts[1:]).sha256 != stored.sha256


@pytest.mark.parametrize(
    "documents", [[], ["", ""], ["text", b"bytes"], ["text", "\ud800"]]
)
def test_documents_without_unicode_text_are_refused(empty_cache, documents):
    with pytest.raises(CorpusError, match=r"my\.py:documents"):
        stored_documents("my.py:documents", documents)


@pytest.mark.parametrize(
    ("content", "promised"),
    [(b"<html>log in first</html>", None), (b"First Citizen", 1_115_394)],
)
def test_a_wrong_or_incomplete_download_is_not_cached(
    without_text, monkeypatch, serve, content, promised
):
    monkeypatch.setattr("data.text.download.URL", serve(answer_with(content, promised)))
    with pytest.raises(CorpusError, match=r"SHA-256 is wrong|cannot download"):
        load_corpus("tiny_shakespeare")

    assert not list(without_text.iterdir())


@pytest.mark.parametrize("drip", [b"", b"x"])
def test_a_stalled_download_ends_at_the_time_limit(serve, drip, monkeypatch):
    done = threading.Event()

    def answer(handler):
        handler.send_response(200)
        handler.end_headers()
        while not done.wait(0.05):  # silent, or one byte now and then
            handler.wfile.write(drip)

    monkeypatch.setattr("data.text.download.SECONDS", 0.5)
    began = time.monotonic()

    with pytest.raises(CorpusError, match="cannot download"):
        download(serve(answer), 2_000_000)

    done.set()

    assert time.monotonic() - began < 10


def test_an_endless_download_is_aborted(serve):
    def answer(handler):
        handler.send_response(200)
        handler.end_headers()
        # the client closes the connection, as it should
        with contextlib.suppress(OSError):
            while True:
                handler.wfile.write(b"x" * 65_536)

    assert len(download(serve(answer), 200_000)) <= 200_000 + 65_536


def test_a_missing_server_and_one_that_does_not_speak_http_are_clear_errors(serve):
    other_protocol = serve(lambda handler: handler.wfile.write(b"SSH-2.0-OpenSSH\r\n"))
    for url in ("http://127.0.0.1:1/input.txt", other_protocol):
        with pytest.raises(CorpusError, match="cannot download tiny Shakespeare"):
            download(url, 1)


@pytest.fixture
def without_text(monkeypatch, empty_cache):
    """Unset the variable, empty the cache, and make downloads fail. Returns the folder of the
    cache."""
    monkeypatch.delenv(corpus.ENVIRONMENT_VARIABLE, raising=False)
    monkeypatch.setattr("data.text.download.URL", "http://127.0.0.1:1/input.txt")
    return empty_cache


def test_the_environment_variable_precedes_the_cache_and_the_cache_the_download(
    without_text, monkeypatch, tmp_path, shakespeare
):
    (tmp_path / "text.txt").write_text(shakespeare)
    (without_text / "tiny_shakespeare.txt").write_text("First Citizen: half of it")
    with monkeypatch.context() as context:
        context.setenv(corpus.ENVIRONMENT_VARIABLE, str(tmp_path / "text.txt"))
        assert whole(load_corpus("tiny_shakespeare")) == shakespeare

    with pytest.raises(CorpusError, match="delete it"):  # a damaged cache
        load_corpus("tiny_shakespeare")

    (without_text / "tiny_shakespeare.txt").write_text(shakespeare)

    assert whole(load_corpus("tiny_shakespeare")) == shakespeare


@pytest.mark.parametrize("is_cached", [True, False])
def test_a_missing_text_is_downloaded_whole_and_cached_if_that_is_possible(
    without_text, monkeypatch, serve, shakespeare, is_cached
):
    if not is_cached:
        without_text.rmdir()
        without_text.write_text("a file in place of the folder")

    monkeypatch.setattr(
        "data.text.download.URL", serve(answer_with(shakespeare.encode()))
    )
    said = []
    loaded = load_corpus("auto", said.append)

    assert (loaded.name, whole(loaded)) == ("tiny_shakespeare", shakespeare)
    assert "downloading tiny Shakespeare" in said[0]
    assert ("will be downloaded again" in said[-1]) == (not is_cached)
    assert [path.name for path in without_text.glob("*")] == [
        "tiny_shakespeare.txt"
    ] * is_cached


def test_line_ends_of_a_file_are_kept(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes("one\r\ntwo\ré".encode())
    loaded = load_corpus(str(path))

    assert (loaded.name, whole(loaded)) == (str(path), "one\r\ntwo\ré")


def one_line_error(name):
    """The message of load_corpus, which must be one line that any terminal and log can take."""
    with pytest.raises(CorpusError) as raised:
        load_corpus(name)

    assert str(raised.value).isprintable()

    return str(raised.value)


UNUSABLE = {
    "No such file": lambda path: None,
    "is empty": Path.touch,
    "has zero bytes": lambda path: path.write_bytes("text".encode("utf-16-le")),
    "is not UTF-8 text (byte 3)": lambda path: path.write_bytes(b"caf\xe9"),
    "is compressed (xz)": lambda path: path.write_bytes(lzma.compress(b"some text")),
    "not a regular file": os.mkfifo,
    "not a regular file (": lambda path: path.symlink_to("/dev/zero"),
    "Too many levels of symbolic links": lambda path: path.symlink_to(path),
    # it takes no room on the disk
    "larger than": lambda path: path.open("wb").truncate(10**12),
}


@pytest.mark.parametrize("by", ["name", "variable", "cache"])
@pytest.mark.parametrize("reason", UNUSABLE)
def test_an_unusable_file_is_refused_with_one_line(
    without_text, monkeypatch, reason, by
):
    """Without the checks, a pipe hangs and a device exhausts the memory."""
    path = without_text / "tiny_shakespeare.txt"
    UNUSABLE[reason](path)
    if by == "name" and reason == "larger than":
        reason = "is a binary file"  # a large text may be of any size

    if by == "variable":
        monkeypatch.setenv(corpus.ENVIRONMENT_VARIABLE, str(path))

    error = one_line_error(str(path) if by == "name" else "tiny_shakespeare")
    if by == "cache" and not path.exists():
        assert "cannot download" in error
    else:
        # for tiny Shakespeare, the content only has to have the right hash
        is_checked_by_hash = by != "name" and path.exists()
        expected = "its SHA-256" if is_checked_by_hash else reason.removesuffix(" (")
        assert expected in error
        assert str(path) in error


BAD_NAMES = [
    "~nosuchuser/x",
    "a\0b",
    "\ud800",
    "x" * 5_000,
    "a\nb",
    "a\x1b[31m\u2028b",
    "",
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_no_usable_file_has_is_refused_with_one_line(
    name, without_text, monkeypatch
):
    assert re.search("cannot (be )?read", one_line_error(name))
    # no environment variable can hold these two
    if name and name not in ("a\0b", "\ud800"):
        monkeypatch.setenv(corpus.ENVIRONMENT_VARIABLE, name)
        assert "cannot read" in one_line_error("tiny_shakespeare")


def test_a_file_name_that_is_not_utf8_is_refused_but_the_variable_may_hold_one(
    without_text, monkeypatch, tmp_path, shakespeare
):
    """Config files, metrics and plots cannot hold such a name; the name of tiny Shakespeare's file
    enters none."""
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.txt")
    Path(path).write_text(shakespeare)

    assert "is not UTF-8: rename the file" in one_line_error(path)

    monkeypatch.setenv(corpus.ENVIRONMENT_VARIABLE, path)

    assert load_corpus("tiny_shakespeare").name == "tiny_shakespeare"


def test_auto_falls_back_to_the_play_with_a_banner_unless_the_variable_names_a_text(
    monkeypatch, without_text
):
    said = []
    loaded = load_corpus("auto", said.append)

    assert (loaded.name, len(whole(loaded))) == ("play", 1_000_000)
    assert loaded.automaton is not None

    for part in ("NOT tiny Shakespeare", "cannot download", "data.corpus=PATH"):
        assert part in said[-1]

    monkeypatch.setenv(corpus.ENVIRONMENT_VARIABLE, "/nowhere.txt")

    assert "cannot read '/nowhere.txt'" in one_line_error("auto")
