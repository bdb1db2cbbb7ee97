"""A full disk in one of two processes. A limit on the size of its files stands for the disk.

The first process writes the run. The other one writes compiled code only.
"""

import os
import resource
import signal
import sys

import pytest

from configs.compiled_code import CACHE_VARIABLE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits a program that runs: Linux only")


def test_a_full_disk_of_the_first_process_leaves_the_last_checkpoint(launcher):
    """Training continues until it has to save its last state; then one line says what happened."""
    programs = launcher.start_long()
    run = launcher.only_run()
    resource.prlimit(programs[0].pid, resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))  # small files only
    read = []
    while not read or "cannot write the checkpoint" not in read[-1]:
        read.append(programs[0].stdout.readline())
        assert read[-1], read
    before = {path.name: path.read_bytes() for path in run.checkpoints.iterdir()}
    for program in programs:
        os.kill(program.pid, signal.SIGINT)
    assert [program.wait(60) for program in programs] == [1, 0]
    errors = [program.stderr.read() for program in programs]
    assert errors[0].count("\n") == 1
    assert "stopped: cannot save the run (File too large): make room for " in errors[0]
    assert errors[1] == ""
    assert {path.name: path.read_bytes() for path in run.checkpoints.iterdir()} == before


@pytest.mark.slow
def test_a_full_disk_of_another_process_costs_the_compiled_code(launcher, monkeypatch, tmp_path):
    """All processes train without it, and the first one says why. Only the second one compiles, with no room at all."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "compiled"))
    config = launcher.config(training__compile=True, training__max_steps=4, model__n_layers=1)
    output, _ = launcher.run(2, "tests/distributed/faulty.py", "full disk", "--config", config)
    assert "training without torch.compile: process 1: " in output
    run = launcher.only_run()
    assert run.metrics()[-1]["step"] == 4
    assert run.status()["status"] == "completed"
