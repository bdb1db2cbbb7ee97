"""The output of a run on a terminal, and its end beside a server that is not the dashboard."""

import contextlib
import os
import pty
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

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


def test_a_run_ends_in_time_beside_a_server_that_answers_byte_by_byte(command, only_run, corpus_file):
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(ConnectionError):
                for byte in b'{"rows": 0, "log": 0, "knobs": null}' + b" " * 1_000:
                    self.wfile.write(bytes([byte]))
                    over.wait(0.3)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:  # its answer takes 300 s
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/api/v1/default"
        done = command(f"data.corpus={corpus_file}", "training.max_steps=4", timeout=120, labml_app_url=url)
        over.set()
        server.shutdown()
    assert done.returncode == 0, done.stderr
    assert "no dashboard at" in done.stdout
    assert len(only_run().metrics()) == 2
    assert only_run().events() == []
