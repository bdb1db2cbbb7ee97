"""A training process and a real server that goes wrong beside it: training goes on, ends in time, and says so."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from runs.run_folder import RunFolder
from tests.board.conftest import Dashboard, app_url
from tests.board.test_delivery import series, shown
from tests.conftest import ROOT, TINY

SECONDS_TO_EXIT = 15
EVALUATIONS = 40
KEYS = TINY | {
    "training.evaluations": EVALUATIONS,
    "training.chars_per_step": 256,
    "training.stages": [{"until": 1.0, "seq_len": 32}],
}


class Training:
    """A run of experiment.py that reports to an address."""

    def __init__(self, folder: Path, corpus: Path, url: str, budget: dict[str, float]):
        config = folder / "config.yaml"
        keys = {"data.corpus": str(corpus), "logs": str(folder / "logs")}
        config.write_text(yaml.safe_dump(KEYS | (budget or {"training.max_seconds": 6.0}) | keys))
        self.process = subprocess.Popen(
            [sys.executable, "experiment.py", "--config", str(config)],
            cwd=ROOT,
            env={**os.environ, "labml_app_url": app_url(url)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.logs = folder / "logs" / "mlm"

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(iter(self.process.stdout.readline, ""))

    @property
    def run(self) -> RunFolder:
        (path,) = self.logs.iterdir()
        return RunFolder(path)

    def until(self, condition: Callable[[], bool], seconds: float = 90) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, "".join(self.lines)
            assert time.monotonic() < deadline, "".join(self.lines)
            threading.Event().wait(0.05)

    def until_evaluated(self, times: int = 3) -> None:
        self.until(lambda: self.logs.exists() and len(list(self.logs.iterdir())) == 1)
        self.until(lambda: self.run.metrics_path.exists() and len(self.run.metrics()) >= times)

    def check_end(self) -> str:
        """Wait for the end; returns the output. Everything is in the folder, and the end came in time."""
        assert self.process.wait(120) == 0, "".join(self.lines)
        ended = time.time()
        self.reader.join(10)
        assert len(self.run.metrics()) == EVALUATIONS
        assert self.run.status()["status"] == "completed"
        # The last weights are written at the end of training; what comes after them is drawing curves, and delivery.
        assert ended - (self.run.checkpoints / "last.pt").stat().st_mtime < SECONDS_TO_EXIT
        return "".join(self.lines)


@pytest.fixture
def trained_beside(tmp_path: Path, corpus_file: Path) -> Iterator[Callable[..., Training]]:
    started: list[Training] = []

    def start(url: str, **budget: float) -> Training:
        keys = {f"training.{name}": value for name, value in budget.items()}
        started.append(Training(tmp_path, corpus_file, url, keys))
        return started[-1]

    yield start
    for training in started:
        training.process.kill()
        training.process.wait()


def check_curve(dashboard: Dashboard, run: RunFolder) -> None:
    """The curve goes from the first evaluation to the last; labml-app averages some that are close together."""
    steps, values = series(dashboard, run.path.name)["loss.valid"]
    rows = run.metrics()
    assert (steps[0], steps[-1]) == (rows[0]["step"], rows[-1]["step"])
    assert values[-1] == pytest.approx(rows[-1]["loss.valid"])
    assert len(steps) > EVALUATIONS / 2


def lines_about(output: str, words: str) -> list[str]:
    return [line for line in output.splitlines() if words in line]


def test_a_dashboard_that_is_there_gets_everything(dashboard: Dashboard, trained_beside):
    training = trained_beside(dashboard.url)
    output = training.check_end()
    uuid = training.run.path.name
    assert len(lines_about(output, f"dashboard {dashboard.url}/run/{uuid}")) == 1
    assert not lines_about(output, "not on the dashboard")
    check_curve(dashboard, training.run)
    (listed,) = shown(dashboard, "runs/null")["runs"]
    assert listed["run_status"]["status"] == "completed"


def test_absent(ended_dashboard_url, trained_beside):
    output = trained_beside(ended_dashboard_url).check_end()
    assert len(lines_about(output, "no dashboard at")) == 1
    (line,) = lines_about(output, "not on the dashboard")
    assert f"{EVALUATIONS} of the evaluations" in line
    assert "--import" in line


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL, signal.SIGSTOP], ids=["stopped", "killed", "frozen"])
def test_dead_in_the_middle(dashboard: Dashboard, trained_beside, number):
    training = trained_beside(dashboard.url)
    training.until_evaluated()
    dashboard.send(number)
    output = training.check_end()
    assert len(lines_about(output, "does not take this run")) == 1
    (line,) = lines_about(output, "not on the dashboard")
    assert "--import" in line


def test_answering_errors(dashboard: Dashboard, trained_beside):
    """The server's own database is broken under it: every answer from then on is a 500."""
    training = trained_beside(dashboard.url)
    training.until_evaluated()
    with sqlite3.connect(dashboard.database, timeout=30) as connection:
        connection.execute("DROP TABLE entries")
    output = training.check_end()
    assert "it answers 500" in lines_about(output, "does not take this run")[0]
    assert len(lines_about(output, "not on the dashboard")) == 1


def test_silent_from_the_beginning(dashboard: Dashboard, trained_beside):
    """It accepts connections, and never answers."""
    dashboard.send(signal.SIGSTOP)
    output = trained_beside(dashboard.url).check_end()
    assert len(lines_about(output, "no dashboard at")) == 1
    assert len(lines_about(output, "not on the dashboard")) == 1


def test_one_that_comes_back_gets_what_it_missed(dashboard: Dashboard, trained_beside):
    training = trained_beside(dashboard.url, max_steps=400)
    training.until_evaluated()
    dashboard.end(signal.SIGKILL)
    training.until(lambda: any("does not take this run" in line for line in training.lines))
    training.process.send_signal(signal.SIGSTOP)  # however long the dashboard takes to come back
    dashboard.start()
    training.process.send_signal(signal.SIGCONT)
    output = training.check_end()
    assert not lines_about(output, "not on the dashboard")
    check_curve(dashboard, training.run)
