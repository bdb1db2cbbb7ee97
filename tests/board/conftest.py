"""A dashboard as a user starts it: a process of its own on a free port of the loopback address."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from runs.run_folder import RunFolder
from tests.conftest import ROOT, needed

SECONDS_TO_START = 60


@dataclass
class Dashboard:
    """A server process that can be stopped, killed, frozen and started again on the same port and database."""

    database: Path
    port: int = 0
    process: subprocess.Popen | None = field(default=None, repr=False)
    output: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> "Dashboard":
        command = [sys.executable, "dashboard.py", "--port", str(self.port), "--db", str(self.database)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.match(r"dashboard http://127\.0\.0\.1:(\d+)/runs ", line)
        assert found, line + self.process.stdout.read()
        self.port = int(found[1])
        threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True).start()
        return self

    def _read(self, stream: Any) -> None:
        self.output.extend(stream)  # else the pipe would fill up, and stop the server

    def send(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def end(self, number: int = signal.SIGINT, seconds: float = 10) -> int:
        """Send a signal and wait for the end; returns the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(seconds)


@pytest.fixture
def dashboard(tmp_path: Path) -> Iterator[Dashboard]:
    """A dashboard of the test's own."""
    started = Dashboard(tmp_path / "dashboard" / "dashboard.sqlite3").start()
    yield started
    started.send(signal.SIGCONT)
    started.end(signal.SIGKILL)


@pytest.fixture(scope="module")
def shared_dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """A dashboard for tests that leave it as it was."""
    started = Dashboard(tmp_path_factory.mktemp("dashboard") / "dashboard.sqlite3").start()
    yield started
    started.end(signal.SIGKILL)


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., RunFolder]:
    """A run's folder as training leaves it, without the training."""

    def make(uuid: str, n_rows: int = 3, **row: float) -> RunFolder:
        run = RunFolder(tmp_path / "logs" / "mlm" / uuid)
        run.path.mkdir(parents=True)
        run.save_about("mlm", "preset quick seed=1", ["seed"])
        stages = [{"until": 0.5, "seq_len": 32, "masking_prob": 0.3}, {"until": 1.0, "seq_len": 64}]
        run.save_config({"seed": 1, "masking.masking_prob": 0.15, "training.stages": stages})
        run.save_corpus("play", "0" * 64)
        run.save_status("in progress")
        for i in range(n_rows):
            run.append_metrics({"step": 10 * (i + 1), "corpus": "play", "loss.valid": 3.0 / (i + 1), **row})
        run.append_log("a line for people, with an é")
        return run

    return make


@pytest.fixture
def ended_dashboard_url() -> str:
    """An address where nobody listens."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def app_url(dashboard_url: str) -> str:
    """The address as labml's configs have it."""
    return f"{dashboard_url}/api/v1/default"


@pytest.fixture
def browser() -> Iterator[Any]:
    """A real browser, which may go nowhere but to this machine."""
    path = next((found for name in ("chromium", "google-chrome", "chrome") if (found := shutil.which(name))), None)
    needed(path is not None, "needs a browser: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    quiet = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses its sandbox to root
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=[*quiet, *sandbox, "--disable-gpu"])
        yield started
        started.close()
