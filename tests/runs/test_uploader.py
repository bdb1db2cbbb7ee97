"""The uploader beside other servers than the dashboard, and at the end of a run."""

import contextlib
import threading
import time

import pytest

import dashboard
from runs.delivery import Delivery, DeliveryError, Uploader
from tests.conftest import answer_with, until

STORED = b'{"stored": {"metrics.jsonl": 0, "hardware.jsonl": 0, "log.txt": 0}, "knobs": null}'
OTHER_ANSWERS = {
    "an error": b'{"errors": [{"error": "refused"}]}',
    "a list": b"[]",
    "no JSON": b"<html></html>",
    "knobs of another type": STORED.replace(b'"knobs": null', b'"knobs": []'),
    "no size": STORED.replace(b": 0", b": null"),
    "a negative size": STORED.replace(b": 0", b": -1"),
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
    port = serve(answer_with(answer)).rpartition(":")[2]
    words = ["--set", run.path, "learning_rate_factor=2", "--port", port]

    assert "it answers, but not as Folio's dashboard does" in refusal(
        dashboard.main, *words
    )


def test_a_server_that_answers_byte_by_byte_is_not_waited_for(run, serve, monkeypatch):
    monkeypatch.setattr("runs.delivery.SECONDS_AT_FIRST", 0.1)
    over = threading.Event()
    lines = []

    def answer(handler):  # takes 300 s
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
    may_answer = threading.Event()
    lines = []
    monkeypatch.setattr("runs.delivery.SECONDS_AT_FIRST", 0.01)
    uploader = Uploader(Delivery(run, "http://127.0.0.1:1"), lines.append)
    monkeypatch.setattr(uploader.delivery, "send", lambda: not may_answer.wait(10))
    uploader.start_and_report()
    may_answer.set()
    uploader.end(10)

    assert [line[:18] for line in lines] == ["no dashboard at ht", "the dashboard answ"]


def test_a_message_that_fails_after_the_end_of_training_is_the_last(run, monkeypatch):
    """A silent dashboard delays the end of a run by one timeout, not by two."""
    sent = []
    uploader = Uploader(Delivery(run, "http://127.0.0.1:1"), lambda line: None)

    def send():
        sent.append(time.time())
        uploader.wake.wait(10)  # `end` sets it
        raise DeliveryError("timed out")

    monkeypatch.setattr(uploader.delivery, "send", send)
    uploader.start()
    until(lambda: sent)
    uploader.end(10)

    assert not uploader.is_alive()
    assert len(sent) == 1
