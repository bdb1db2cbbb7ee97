"""Processes that are killed, that hang, that load something else than the others, or whose disk is
full."""

import os
import re
import resource
import signal
import sys

import psutil
import pytest

from configs.compiled_code import CACHE_VARIABLE
from distributed.processes import HANGS, LOST
from training.checkpoint import load_checkpoint, load_last

PROGRAM = "tests/distributed/faulty.py"
on_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="limits a program that runs: Linux only"
)


def check_errors(launcher, fault, codes, *patterns, **keys):
    """The exit codes and the errors of two processes, of which the second has a fault."""
    outputs = launcher.ended(codes, PROGRAM, fault, "--config", launcher.config(**keys))
    for (_, errors), pattern in zip(outputs, patterns, strict=True):
        assert re.fullmatch(pattern, errors)


@pytest.mark.parametrize(
    ("number", "lost"),
    [
        pytest.param(signal.SIGKILL, 0, marks=pytest.mark.slow),
        (signal.SIGKILL, 1),
        pytest.param(signal.SIGSTOP, 1, marks=pytest.mark.slow),
    ],
)
def test_when_a_process_is_lost_the_others_end(launcher, number, lost):
    programs = launcher.start_long(PROGRAM, "none")
    os.kill(programs[lost].pid, number)

    assert programs[1 - lost].wait(60) == 1

    (error,) = programs[1 - lost].stderr.read().splitlines()
    assert "stopped: " in error

    programs[lost].kill()  # as torchrun does
    programs[lost].wait(10)
    run = launcher.only_run()
    if lost == 1:
        assert error == f"faulty.py: stopped: {run.status()['details']}"

    assert load_last(run.checkpoints).state["step"] > 0


def test_processes_end_with_torchrun(launcher):
    """It is the parent of all processes on its machine, and one torchrun has the store."""
    processes = [psutil.Process(program.pid) for program in launcher.start_long()]
    for process in processes:
        process.parent().kill()

    launcher.stores.clear()
    _, alive = psutil.wait_procs(processes, timeout=60)

    assert not alive


@pytest.mark.slow
def test_others_wait_while_one_process_compiles_or_saves(launcher):
    keys = {
        "training__compile": True,
        "training__max_steps": 2,
        "training__evaluations": 1,
    }
    launcher.run(2, PROGRAM, "slow compiler", "--config", launcher.config(**keys))

    # the clock stands still meanwhile
    assert launcher.only_run().metrics()[-1]["seconds"] < 6


DIFFERS = "faulty.py: process 1 differs from process 0: its"
# exit codes, and a line per process; the first process alone reports what all have found
ERRORS = {
    "hang": ([1, 1], f"faulty.py: stopped: {HANGS}\n", f"stopped: {LOST}\n"),
    "checkpoint": (
        [1, 2],
        f"faulty.py: stopped: {LOST}\n",
        "faulty.py: process 1: .*no checkpoint.*\n",
    ),
    "memory": (
        [1, 1],
        f"faulty.py: stopped: {LOST}\n",
        "faulty.py: process 1: .*out of memory.*\n",
    ),
    "key": ([2, 2], f"{DIFFERS} seed is 5, not 0\n", ""),
    # Of the same characters: without the check it would train to the end.
    "text": ([2, 2], f"{DIFFERS} text is [0-9a-f]{{64}}, not [0-9a-f]{{64}}\n", ""),
}


@pytest.mark.parametrize("fault", ERRORS)
def test_a_fault_of_one_process_ends_all_and_is_named(launcher, fault):
    check_errors(launcher, fault, *ERRORS[fault], training__max_steps=1_000_000)
    if fault in ("key", "text"):
        assert not (launcher.folder / "logs").exists()


def test_a_batch_that_cannot_be_divided_is_refused_by_one_line(launcher):
    line = "faulty.py: .*is not a multiple of seq_len=1024 .*times 2 processes\n"
    stages = [{"until": 1.0, "seq_len": 1024}]
    check_errors(launcher, "none", [2, 2], line, "", training__stages=stages)


def test_a_process_without_the_text_is_named(launcher, shakespeare):
    """The first process decides which text `auto` is; the others do not replace it by the play."""
    line = "faulty.py: process 1: FOLIO_TINY_SHAKESPEARE: cannot read.*\n"
    check_errors(launcher, "no text", [2, 2], line, "", data__corpus="auto")


@on_linux
@pytest.mark.parametrize(
    ("parallel", "rank", "named"),
    [("ddp", 0, ""), ("fsdp", 0, ""), ("fsdp", 1, "process 1: ")],
)
@pytest.mark.slow
def test_a_full_disk_of_a_process_leaves_the_last_checkpoint(
    launcher, parallel, rank, named
):
    """A limit on the size of its files stands for the disk. Training continues until it has to save
    its last state."""
    programs = launcher.start_long("experiment.py", f"training.parallel={parallel}")
    run = launcher.only_run()
    # small files only
    resource.prlimit(
        programs[rank].pid, resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY)
    )
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
    assert (
        f"stopped: cannot save the run ({named}File too large): make room for "
        in errors[0]
    )
    assert errors[1] == ""
    assert {
        path.name: path.read_bytes() for path in run.checkpoints.iterdir()
    } == before


@pytest.mark.parametrize("n_evaluations", [1, 3])
def test_best_weights_that_a_process_cannot_write_are_those_of_a_later_evaluation_or_an_error(
    launcher, n_evaluations
):
    keys = {
        "training__parallel": "fsdp",
        "training__max_steps": 30,
        "training__evaluations": n_evaluations,
    }
    config = launcher.config(**keys)
    is_tried_again = n_evaluations > 1
    codes = [int(not is_tried_again), 0]
    (output, errors), _ = launcher.ended(
        codes, PROGRAM, "full disk once", "--config", config
    )

    assert (
        "cannot write the best weights; will try again (process 1: No space" in output
    )
    assert ("the best weights could not be written" in errors) != is_tried_again

    run = launcher.only_run()
    assert load_last(run.checkpoints).state["step"] == 30

    if is_tried_again:
        best = load_checkpoint(run.checkpoints / "best.safetensors").state["loss.valid"]
        assert best == min(row["loss.valid"] for row in run.metrics()[1:])


@on_linux
@pytest.mark.slow
def test_a_full_disk_of_another_process_costs_the_compiled_code(
    launcher, monkeypatch, tmp_path
):
    """All processes train without it, and the first one says why. Only the second one compiles,
    with no room at all."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "compiled"))
    config = launcher.config(
        training__compile=True, training__max_steps=4, model__n_layers=1
    )
    output, _ = launcher.run(2, PROGRAM, "full disk", "--config", config)

    assert "training without torch.compile: process 1: " in output

    run = launcher.only_run()
    assert run.metrics()[-1]["step"] == 4
    assert run.status()["status"] == "completed"
