"""Real processes that are interrupted, killed, or started at the same time.

An interrupted run that is resumed ends like one that was not interrupted: with the same weights,
bit for bit, and the same rows.
"""

import random
import signal
import threading
import time

import pytest

from distributed.interruption import stopping_signals
from tests.conftest import check_same, config_file, only_run

KEYS = {
    "training.max_steps": 60,
    "training.evaluations": 6,
    "training.stages": [
        {"until": 0.4, "seq_len": 32, "masking_prob": 0.3},
        {"until": 1.0, "seq_len": 64},
    ],
    "training.grad_accum_steps": 2,
    "data.sampling": "shuffled",
    "masking.strategy": "adaptive",
    "model.dropout": 0.1,
    "checkpoint.every_seconds": 0.05,
    "seed": 3,
}


class Programs:
    """Starts `python experiment.py` with two threads, and finds the run that it creates."""

    def __init__(self, fork_server, folder, corpus):
        self.fork_server = fork_server
        self.logs = folder / "logs"
        self.config = config_file(folder, KEYS | {"data.corpus": corpus})

    def start(self, *keys):
        return self._start("--config", self.config, *keys)

    def resume(self):
        return self._start("--resume", str(self.run.path))

    def _start(self, *arguments):
        return self.fork_server.start(
            ["experiment.py", *arguments], {"OMP_NUM_THREADS": "2"}, merged=True
        )

    @property
    def run(self):
        return only_run(self.logs)

    def wait_for_rows(self, process, n_rows):
        """Wait until the run has so many rows, or has ended."""
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            if (
                any(self.logs.glob("mlm/*/metrics.jsonl"))
                and len(self.run.metrics()) >= n_rows
            ):
                return
            threading.Event().wait(0.005)


@pytest.fixture
def programs(fork_server, tmp_path, text_file):
    return Programs(fork_server, tmp_path, text_file)


@pytest.fixture(scope="module")
def whole(fork_server, tmp_path_factory, text_file):
    """A run that nothing interrupts."""
    programs = Programs(fork_server, tmp_path_factory.mktemp("whole"), text_file)
    assert "done" in programs.start("checkpoint.every_seconds=60").output()

    return programs.run


@pytest.fixture(autouse=True)
def without_nohup():
    """The tests themselves may run under `nohup`, whose processes inherit an ignored SIGHUP."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def test_a_run_that_is_interrupted_by_each_signal_ends_like_one_that_is_not(
    programs, whole
):
    process = programs.start()
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)

    for n_rows, number in enumerate(signals, start=1):
        programs.wait_for_rows(process, n_rows)
        process.send_signal(number)
        output = process.output(128 + number)

        assert f"python experiment.py --resume {programs.run.path}" in output

        process = programs.resume()

    output = process.output()

    assert "resuming at step" in output
    assert "warning" not in output

    check_same(whole, programs.run)
    assert [event["event"] for event in programs.run.events()] == ["resumed"] * 4


@pytest.mark.slow
def test_the_time_for_which_a_process_is_paused_is_not_training_time(programs):
    process = programs.start("training.max_steps=300")
    programs.wait_for_rows(process, 1)
    process.send_signal(signal.SIGSTOP)
    threading.Event().wait(3.0)
    process.send_signal(signal.SIGCONT)
    process.output()
    last = programs.run.metrics()[-1]

    assert last["seconds"] < last["wall_seconds"] - 3.0


def test_under_nohup_a_closed_terminal_stops_no_run():
    assert signal.SIGHUP in stopping_signals()

    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert signal.SIGHUP not in stopping_signals()


def test_a_run_that_is_killed_at_random_moments_ends_like_one_that_is_not(
    programs, whole
):
    """SIGKILL, five times: while the run starts, trains, evaluates or saves."""
    process = programs.start()
    programs.wait_for_rows(process, 1)
    process.kill()

    assert process.wait(60) == -signal.SIGKILL

    generator = random.Random(0)

    for _ in range(4):
        process = programs.resume()
        for line in process.stdout:
            if line.startswith("resuming at step"):
                break

        threading.Event().wait(generator.uniform(0.0, 0.6))
        process.kill()
        process.wait(60)

    if programs.run.status()["status"] != "completed":
        programs.resume().output()

    check_same(whole, programs.run)
