import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data import corpus
from data.corpus import Corpus, CorpusError, download, load_corpus


def whole(loaded: Corpus) -> str:
    return loaded.training + loaded.validation


@pytest.fixture
def serve() -> Iterator[Callable]:
    """A real server on loopback that answers with a function of the request's handler."""
    servers = []

    def start(answer: Callable[[BaseHTTPRequestHandler], None]) -> str:
        handler = type("Handler", (BaseHTTPRequestHandler,), {"do_GET": answer, "log_message": lambda *_: None})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/input.txt"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def answer_with(content: bytes, promised: int | None = None) -> Callable:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content) if promised is None else promised))
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def test_a_download_arrives_whole(serve, shakespeare: str):
    assert download(serve(answer_with(shakespeare.encode()))).decode() == shakespeare


@pytest.mark.parametrize(("content", "promised"), [(b"<html>log in first</html>", None), (b"First Citizen", 1_115_394)])
def test_a_wrong_or_broken_download_is_not_kept_and_loses_nothing(without_text, monkeypatch, serve, content, promised):
    cached = without_text / "tiny_shakespeare.txt"
    monkeypatch.setattr(corpus, "TINY_SHAKESPEARE_URL", serve(answer_with(content, promised)))
    with pytest.raises(CorpusError, match=r"SHA-256 is wrong|cannot download"):
        load_corpus("tiny_shakespeare")
    assert not cached.exists()
    assert not list(without_text.glob("*"))


@pytest.mark.parametrize("drip", [b"", b"x"])
def test_a_download_that_stalls_ends_at_the_limit(serve, drip: bytes):
    done = threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1115394")
        handler.end_headers()
        while not done.wait(0.05):  # silent, or a byte now and then
            handler.wfile.write(drip)
            handler.wfile.flush()

    began = time.monotonic()
    with pytest.raises(CorpusError, match="cannot download"):
        download(serve(answer), seconds=0.5)
    done.set()
    assert time.monotonic() - began < 10


def test_an_endless_download_is_cut_short(serve):
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            while True:
                handler.wfile.write(b"x" * 65_536)
        except OSError:
            pass  # the client has hung up, as it should

    with pytest.raises(CorpusError, match="SHA-256 is wrong"):
        download(serve(answer))


def test_no_server_and_a_server_that_speaks_no_http_are_clear_errors(serve):
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"SSH-2.0-OpenSSH\r\n")

    for url in ("http://127.0.0.1:1/input.txt", serve(answer)):
        with pytest.raises(CorpusError, match="cannot download tiny Shakespeare"):
            download(url)


@pytest.fixture
def without_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No variable, and an empty cache, whose folder it returns; a download that was not asked for fails."""
    monkeypatch.delenv(corpus.ENVIRONMENT_VARIABLE, raising=False)
    monkeypatch.setattr(corpus, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(corpus, "TINY_SHAKESPEARE_URL", "http://127.0.0.1:1/input.txt")
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


def test_the_environment_variable_comes_before_the_cache(without_text, monkeypatch, tmp_path, shakespeare: str):
    (without_text / "tiny_shakespeare.txt").write_text("another text")
    (tmp_path / "text.txt").write_text(shakespeare)
    monkeypatch.setenv(corpus.ENVIRONMENT_VARIABLE, str(tmp_path / "text.txt"))
    assert whole(load_corpus("tiny_shakespeare")) == shakespeare


def test_the_cache_comes_before_the_download(without_text, shakespeare: str):
    (without_text / "tiny_shakespeare.txt").write_text(shakespeare)
    assert whole(load_corpus("tiny_shakespeare")) == shakespeare


def test_a_missing_text_is_downloaded_announced_and_kept(without_text, monkeypatch, serve, shakespeare: str):
    monkeypatch.setattr(corpus, "TINY_SHAKESPEARE_URL", serve(answer_with(shakespeare.encode())))
    said: list[str] = []
    assert load_corpus("auto", said.append).name == "tiny_shakespeare"
    assert "downloading tiny Shakespeare" in said[0]
    assert [path.name for path in without_text.iterdir()] == ["tiny_shakespeare.txt"]


def test_a_cache_that_cannot_be_written_costs_nothing_else(without_text, monkeypatch, serve, shakespeare: str):
    without_text.rmdir()
    without_text.write_text("a file in the way")
    monkeypatch.setattr(corpus, "TINY_SHAKESPEARE_URL", serve(answer_with(shakespeare.encode())))
    said: list[str] = []
    assert whole(load_corpus("auto", said.append)) == shakespeare
    assert "cannot keep it" in said[-1]


def test_a_damaged_cache_is_refused(without_text):
    (without_text / "tiny_shakespeare.txt").write_text("First Citizen: half of it")
    with pytest.raises(CorpusError, match="delete it"):
        load_corpus("tiny_shakespeare")


def test_line_ends_of_a_file_are_kept(tmp_path: Path):
    path = tmp_path / "text.txt"
    path.write_bytes("one\r\ntwo\ré".encode())
    assert whole(load_corpus(str(path))) == "one\r\ntwo\ré"


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot read"), (b"", "is empty"), (b"caf\xe9", r"is not UTF-8 text \(byte 3\)")],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, content: bytes | None, message: str):
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CorpusError, match=message):
        load_corpus(str(path))


def test_a_folder_is_not_a_corpus(tmp_path: Path):
    with pytest.raises(CorpusError, match="cannot read"):
        load_corpus(str(tmp_path))


def test_the_play_needs_nothing():
    loaded = load_corpus("play")
    assert (loaded.name, len(whole(loaded))) == ("play", 1_000_000)
    assert loaded.automaton is not None


def test_auto_takes_the_play_where_the_text_cannot_be_had_and_says_so(monkeypatch, tmp_path: Path):
    monkeypatch.setenv(corpus.ENVIRONMENT_VARIABLE, str(tmp_path / "nowhere.txt"))
    said: list[str] = []
    assert load_corpus("auto", said.append).name == "play"
    (banner,) = said
    assert "NOT tiny Shakespeare" in banner
    assert "cannot read" in banner  # why
    assert "data.corpus=PATH" in banner  # and how to get the real text
    with pytest.raises(CorpusError):
        load_corpus("tiny_shakespeare")


@given(text=st.text(max_size=200))
def test_a_corpus_is_split_at_nine_tenths_and_keeps_its_hash_and_characters(text: str):
    text = text.encode("utf-8", "replace").decode()
    split = Corpus.from_text("a text", text)
    assert whole(split) == text
    assert len(split.training) == int(len(text) * 0.9)
    assert split.sha256 == hashlib.sha256(text.encode()).hexdigest()
    assert split.characters == "".join(sorted(set(text)))
