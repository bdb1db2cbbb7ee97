"""The uploader beside other servers than the dashboard, and at the end of a run."""

import contextlib
import threading
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

import dashboard
from runs.delivery import Delivery, DeliveryError, Uploader
from tests.conftest import answer_with

OTHER_ANSWERS: dict[str, bytes] = {
    "an error": b'{"errors": [{"error": "refused"}]}',
    "a list": b"[]",
    "no JSON": b"<html></html>",
    "knobs of another type": b'{"stored": {"metrics.jsonl": 0, "hardware.jsonl": 0, "log.txt": 0}, "knobs": []}',
    "no size": b'{"stored": {"metrics.jsonl": null, "hardware.jsonl": 0, "log.txt": 0}, "knobs": null}',
    "a negative size": b'{"stored": {"metrics.jsonl": -1, "hardware.jsonl": 0, "log.txt": 0}, "knobs": null}',
    "too deep": b"[" * 100_000,
}


@pytest.mark.parametrize("answer", OTHER_ANSWERS.values(), ids=OTHER_ANSWERS)
def test_another_server_is_not_taken_for_the_dashboard(run, serve, answer, refusal):
    address = serve(answer_with(answer))
    with pytest.raises(DeliveryError):
        Delivery(run, address).send(10)
    words = ["--import", run.path, "--port", address.rpartition(":")[2]]
    assert f"no dashboard at {address} (" in refusal(dashboard.main, *words)


@pytest.mark.parametrize("answer", [b"{}", b"<html>hello</html>"])
def test_knobs_are_not_set_on_another_server(run, serve, answer, refusal):
    address = serve(answer_with(answer))
    words = ["--set", run.path, "learning_rate_factor=2", "--port", address.rpartition(":")[2]]
    assert "it answers, but not as Folio's dashboard does" in refusal(dashboard.main, *words)


def test_a_server_that_answers_byte_by_byte_is_not_waited_for(run, serve, monkeypatch):
    monkeypatch.setattr("runs.delivery.SECONDS_AT_FIRST", 0.1)
    over, lines = threading.Event(), list[str]()

    def answer(handler: BaseHTTPRequestHandler) -> None:  # takes 300 s
        handler.send_response(200)
        handler.end_headers()
        with contextlib.suppress(ConnectionError):
            for byte in b'{"stored": {}, "knobs": null}' + b" " * 1_000:
                handler.wfile.write(bytes([byte]))
                over.wait(0.3)

    uploader = Uploader(Delivery(run, serve(answer)), lines.append)
    uploader.start_and_report()
    assert uploader.end(0.2) is None
    assert uploader.is_alive()
    assert uploader.daemon  # the program ends although the thread still reads
    (line,) = lines
    assert line.startswith("no dashboard at")
    over.set()


def test_an_answer_after_the_first_report_is_reported_too(run, monkeypatch):
    may_answer, lines = threading.Event(), list[str]()
    monkeypatch.setattr("runs.delivery.SECONDS_AT_FIRST", 0.01)
    uploader = Uploader(Delivery(run, "http://127.0.0.1:1"), lines.append)
    monkeypatch.setattr(uploader.delivery, "send", lambda: not may_answer.wait(10))
    uploader.start_and_report()
    may_answer.set()
    uploader.end(10)
    assert [line[:18] for line in lines] == ["no dashboard at ht", "the dashboard answ"]


def test_a_message_that_fails_after_the_end_of_training_is_the_last(run, monkeypatch):
    """A silent dashboard delays the end of a run by one timeout, not by two."""
    n_sent, has_ended = 0, threading.Event()
    uploader = Uploader(Delivery(run, "http://127.0.0.1:1"), lambda line: None)

    def send(*_: Any) -> bool:
        nonlocal n_sent
        n_sent += 1
        has_ended.wait(10)
        raise DeliveryError("timed out")

    monkeypatch.setattr(uploader.delivery, "send", send)
    uploader.start()
    ending = threading.Thread(target=uploader.end, args=(10,))
    ending.start()
    while not uploader.wake.is_set():  # `end` sets it
        has_ended.wait(0.001)
    has_ended.set()
    ending.join(10)
    assert not uploader.is_alive()
    assert n_sent == 1
