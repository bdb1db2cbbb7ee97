"""The output of a run on a terminal, its end after a signal, and its end beside a server that is not the dashboard."""

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from runs.delivery import Delivery, DeliveryError
from runs.run_folder import RunFolder
from tests.conftest import ROOT


def test_a_terminal_shows_progress_with_the_time_left_and_colored_guesses(corpus_file, home, tmp_path):
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
        pass  # how Linux reports that the other side has closed
    limit.cancel()
    assert process.wait(timeout=60) == 0
    text = shown.decode()
    assert re.search(r"Train\S*\s+\d+%", text)
    assert re.search(r"about \d+:\d\d left", text)
    assert "\x1b[32m" in text or "\x1b[31m" in text  # a right or a wrong guess
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
    assert "interrupted and saved" in rest
    assert "Traceback" not in rest
    (run,) = (tmp_path / "mlm").iterdir()
    assert (run / "checkpoints" / "last.safetensors").exists()
    assert (run / "curves.png").exists()


@pytest.fixture
def another_server() -> Iterator[Callable[[bytes, float], str]]:
    """A server that is not the dashboard: it answers every POST with the given bytes, one by one."""
    servers = []

    def start(answer: bytes, seconds_per_byte: float) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.send_response(200)
                self.end_headers()
                with contextlib.suppress(ConnectionError):
                    for byte in answer:
                        self.wfile.write(bytes([byte]))
                        over.wait(seconds_per_byte)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    over = threading.Event()
    yield start
    over.set()
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    "answer",
    [
        b'{"errors": [{"error": "refused"}]}',
        b'{"rows": 0, "log": 0, "knobs": []}',
        b'{"rows": null, "log": -1, "knobs": {"learning_rate_factor": 2}}',
        b"[" * 100_000,
    ],
    ids=["an error", "wrong knobs", "wrong counts", "too deep"],
)
def test_a_server_that_is_not_the_dashboard_is_recognized(tmp_path, another_server, answer):
    run = RunFolder.create(tmp_path / "run")
    run.save_about("mlm", "a test", [])
    run.save_config({"training.stages": [{"until": 1.0, "seq_len": 32}], "masking.masking_prob": 0.15})
    run.save_corpus("play", "0" * 64)
    run.save_status("in progress")
    with pytest.raises(DeliveryError):
        Delivery(run, another_server(answer, 0.0)).send()


def test_a_run_ends_in_time_beside_a_server_that_answers_byte_by_byte(command, only_run, corpus_file, another_server):
    url = another_server(b'{"rows": 0, "log": 0, "knobs": null}' + b" " * 1_000, 0.3)
    done = command(
        f"data.corpus={corpus_file}", "training.max_steps=4", timeout=45, labml_app_url=f"{url}/api/v1/default"
    )
    assert done.returncode == 0, done.stderr
    assert "no dashboard at" in done.stdout
    assert len(only_run().metrics()) == 2
    assert only_run().events() == []
