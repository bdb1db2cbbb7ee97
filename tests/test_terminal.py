"""What a run shows on a terminal, and that it ends whatever the dashboard's server does."""

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.conftest import ROOT


def test_a_terminal_gets_progress_with_the_time_left_and_coloured_guesses(corpus_file, home, tmp_path):
    ours, theirs = pty.openpty()
    keys = [f"data.corpus={corpus_file}", "training.max_steps=30", "training.compile=false", "device=cpu"]
    keys += ["training.evaluations=2", "sample.every_evaluations=1", "model.d_model=32", "training.chars_per_step=512"]
    process = subprocess.Popen(
        [sys.executable, "experiment.py", "--preset", "quick", *keys, f"logs={tmp_path}"],
        cwd=ROOT, env={**os.environ, "HOME": str(home)}, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    limit = threading.Timer(120, process.kill)
    limit.start()
    shown = b""
    try:
        while block := os.read(ours, 65_536):
            shown += block
    except OSError:
        pass  # Linux says so when the other side has closed
    limit.cancel()
    assert process.wait(timeout=60) == 0
    text = shown.decode()
    assert re.search(r"Train\S*\s+\d+%", text)
    assert re.search(r"about \d+:\d\d left", text)
    assert "\x1b[32m" in text or "\x1b[31m" in text  # a right guess or a wrong one
    assert "loss.valid" in text


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_finishes_the_step_saves_and_ends_with_its_code(corpus_file, home, tmp_path, number, code):
    keys = ["--preset", "quick", f"data.corpus={corpus_file}", "training.compile=false", "device=cpu"]
    keys += ["model.d_model=32", "training.max_steps=1000000", "training.evaluations=100000", f"logs={tmp_path}"]
    process = subprocess.Popen(
        [sys.executable, "experiment.py", *keys],
        cwd=ROOT, env={**os.environ, "HOME": str(home)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    lines = []
    for line in process.stdout or ():
        lines.append(line)
        if line.startswith("step "):
            process.send_signal(number)
            break
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == code
    assert "interrupted, and saved" in rest
    assert "Traceback" not in rest
    (run,) = (tmp_path / "mlm").iterdir()
    assert (run / "checkpoints" / "last.safetensors").exists()
    assert (run / "curves.png").exists()


@pytest.fixture
def another_server() -> Iterator[Callable[[bytes, float], str]]:
    """A server that is no dashboard: it answers every POST with JSON of its own, a byte at a time if need be."""
    servers = []

    def start(answer: bytes, seconds_a_byte: float) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.send_response(200)
                self.end_headers()
                with contextlib.suppress(ConnectionError):
                    for byte in answer:
                        self.wfile.write(bytes([byte]))
                        over.wait(seconds_a_byte)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/api/v1/default"

    over = threading.Event()
    yield start
    over.set()
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("answer", "seconds_a_byte"),
    [
        (b'{"errors": [{"error": "refused"}]}', 0.0),
        (b'{"rows": 0, "log": 0, "knobs": []}', 0.0),
        (b'{"rows": null, "log": -1, "knobs": {"learning_rate_factor": 2}}', 0.0),
        (b"[" * 100_000, 0.0),
        (b'{"rows": 0, "log": 0, "knobs": null}' + b" " * 1_000, 0.3),
    ],
    ids=["an error", "knobs that are none", "counts that are none", "too deep", "a byte at a time"],
)
def test_a_server_of_another_kind_is_not_taken_for_the_dashboard(
    command, only_run, corpus_file, another_server, answer, seconds_a_byte
):
    url = another_server(answer, seconds_a_byte)
    began = time.monotonic()
    done = command(f"data.corpus={corpus_file}", "training.max_steps=4", labml_app_url=url)
    assert done.returncode == 0, done.stderr
    assert "no dashboard at" in done.stdout
    assert "not on the dashboard: 2 of the evaluations" in done.stdout
    assert len(only_run().metrics()) == 2
    assert only_run().events() == []
    assert time.monotonic() - began < 45


@pytest.mark.parametrize("address", ["127.0.0.1:5005", "localhost", "http://[::1/api", "ftp://host/", "http://"])
def test_an_address_that_is_none_is_said_in_one_line(command, corpus_file, address):
    done = command(f"data.corpus={corpus_file}", "training.max_steps=1", labml_app_url=address)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "is not of the form http://127.0.0.1:5005" in done.stderr
