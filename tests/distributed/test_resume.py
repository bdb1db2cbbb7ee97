"""A run continues with the same number of processes bit for bit, and with another one on the same data."""

import os
import signal
import time

import pytest
from safetensors.torch import load_file

from runs.run_folder import RunFolder
from tests.distributed.conftest import Launcher
from tests.distributed.test_equality import run_of
from tests.waiting import until


def trained_to(launcher: Launcher, n: int, steps: int, resumed: RunFolder | None = None) -> RunFolder:
    """Train a new run, or go on with one, up to a step."""
    if resumed:
        launcher.run(n, "experiment.py", "--resume", str(resumed.path), f"training.max_steps={steps}")
        return resumed
    launcher.run(n, "experiment.py", "--config", launcher.config(training__max_steps=steps, **ONE_STAGE))
    return run_of(launcher.folder)


ONE_STAGE = {
    "training__stages": [{"until": 1.0, "seq_len": 32}],
    "training__warmup": 0.0,  # so that the learning rate does not depend on the budget
    "training__decay": 0.0,
    "model__dropout": 0.1,
}


def weights_of(run: RunFolder) -> dict:
    return load_file(run.checkpoints / "last.safetensors")


def test_two_processes_resume_bit_for_bit(launcher, tmp_path):
    runs = []
    for name, parts in (("whole", [8]), ("parts", [3, 8])):
        launcher.folder = tmp_path / name
        launcher.folder.mkdir()
        run = None
        for steps in parts:
            run = trained_to(launcher, 2, steps, run)
        runs.append(weights_of(run))
    whole, parts = runs
    assert all((whole[name] == parts[name]).all() for name in whole)


def test_another_number_of_processes_goes_on_with_the_same_data(launcher, tmp_path):
    """Without dropout, the result is that of one process up to rounding."""
    runs = []
    for name, numbers in (("one", [1, 1, 1]), ("mixed", [2, 1, 2])):
        launcher.folder = tmp_path / name
        launcher.folder.mkdir()
        run = None
        ONE_STAGE["model__dropout"] = 0.0
        for i, n in enumerate(numbers, start=1):
            run = trained_to(launcher, n, 3 * i, run)
        runs.append(weights_of(run))
    one, mixed = runs
    for name in one:
        assert one[name].numpy() == pytest.approx(mixed[name].numpy(), abs=1e-4)


def long_run(launcher: Launcher) -> list:
    keys = {"training__max_steps": 1_000_000, "checkpoint__every_seconds": 0.3, "training__evaluations": 1}
    programs = launcher.start(2, "experiment.py", "--config", launcher.config(**keys))
    until(lambda: (launcher.folder / "logs" / "mlm").exists(), 60)
    until(lambda: list((launcher.folder / "logs" / "mlm").glob("*/checkpoints/previous.pt")), 60)
    return programs


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hung"])
def test_when_a_process_is_lost_the_others_end_within_a_minute(launcher, lost, number):
    programs = long_run(launcher)
    began = time.monotonic()
    os.kill(programs[lost].pid, number)
    other = programs[1 - lost]
    assert other.wait(60) == 1
    assert time.monotonic() - began < 60
    output = other.stdout.read() + other.stderr.read()
    assert "stopped: " in output or lost == 0
    assert "Traceback" not in output
    if number == signal.SIGSTOP:
        os.kill(programs[lost].pid, signal.SIGKILL)  # as torchrun does
    programs[lost].wait(10)
    run = run_of(launcher.folder)
    step = run.metrics()[-1]["step"] if run.metrics() else 0
    launcher.run(2, "experiment.py", "--resume", str(run.path), "training.max_steps=1")  # it is whole
    assert step >= 0


def test_a_restart_continues_the_run(launcher):
    keys = {"training__max_steps": 60, "checkpoint__every_seconds": 0.1, "training__evaluations": 1}
    config = launcher.config(**keys)
    programs = launcher.start(2, "experiment.py", "--config", config)
    until(lambda: list(launcher.folder.glob("logs/mlm/*/checkpoints/last.pt")), 60)
    os.kill(programs[1].pid, signal.SIGKILL)
    for program in programs:
        program.wait(60)
    outputs = launcher.run(2, "experiment.py", "--config", config, attempt=1)
    assert "resuming at step" in outputs[0]
    assert run_of(launcher.folder).status()["status"] == "completed"  # and there is one run


def test_ctrl_c_saves_and_ends_all(launcher):
    programs = long_run(launcher)
    for program in programs:
        os.kill(program.pid, signal.SIGINT)
    for program in programs:
        os.kill(program.pid, signal.SIGTERM)  # torchrun repeats it
    assert [program.wait(30) for program in programs] == [130, 0]
    assert run_of(launcher.folder).status()["status"] == "interrupted"


def test_a_batch_that_cannot_be_divided_is_refused_by_one_line(launcher):
    config = launcher.config(training__max_steps=2, training__stages=[{"until": 1.0, "seq_len": 1024}])
    programs = launcher.start(2, "experiment.py", "--config", config)
    assert [program.wait(60) for program in programs] == [2, 2]
    errors = "".join(program.stderr.read() for program in programs)
    assert "is not a multiple of seq_len=1024 times 2 processes" in errors
    assert errors.count("\n") == 1
