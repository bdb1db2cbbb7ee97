"""`make gpu` rehearsed on a CPU: its steps with tiny shapes, and the command that takes them."""

import json
import os
import select
import signal
import sys
import time
from argparse import Namespace
from collections import defaultdict

import psutil
import pytest

from benchmarks import gpu
from benchmarks.gpu_steps import candidate, correctness, process, speed
from benchmarks.gpu_steps.marks import MARKS, Mark, at_most
from benchmarks.gpu_steps.plan import STEPS
from benchmarks.gpu_steps.process import StepProcess, processor_seconds
from benchmarks.gpu_steps.step import Step
from tests.conftest import slow


@pytest.fixture
def taken(tmp_path):
    """Takes a step with tiny shapes; returns the step."""

    def take(name):
        step = Step(tmp_path / "rows.json", 60.0, is_dry=True)
        STEPS[name].take(step)
        return step

    return take


@pytest.mark.parametrize("name", ["agreement", "resume", *slow("packing")])
def test_a_step_passes_on_a_cpu(taken, name):
    step = taken(name)
    assert step.passed, step.rows


def test_a_gradient_that_differs_fails_its_step(taken, monkeypatch):
    original = correctness.gradients
    factors = []

    def planted(*args):
        factors.append(10.0 * len(factors))
        gradients = original(*args)
        return gradients | {"gradients": gradients["gradients"] * factors[-1]}

    monkeypatch.setattr(correctness, "gradients", planted)
    step = taken("agreement")

    assert not step.passed
    assert dict(step.rows)["gpu, float32: gradients differ by"].endswith(": failed")


def test_attention_across_documents_shows_in_their_logits(tmp_path, monkeypatch):
    step = Step(tmp_path / "rows.json", 60.0, is_dry=True)
    model = candidate.Inspected(speed.packing_models(step)[speed.PACKED])
    for _ in range(30):
        model.take()

    right = model.difference_alone()
    monkeypatch.setattr(candidate, "masks_of", lambda batch: {})

    assert right < 1e-3
    assert model.difference_alone() > max(1e-3, 10 * right)


def test_a_peer_is_compared_by_its_fastest_attention(tmp_path):
    step = Step(tmp_path / "rows.json", 60.0, is_dry=True)
    shape = "gpu-base"
    speeds = {f"{shape}, AdamW": 6.0, f"{shape}, ModernBERT": 2.0}
    speeds[f"{shape}, ModernBERT{speed.WITH_FLEX}"] = 3.0
    for peer in ("ModernBERT", "BERT"):
        speed.add_ratio(step, speeds, shape, "AdamW", peer)

    assert step.figures == {f"{shape}, AdamW: speed relative to ModernBERT": 2.0}


@pytest.fixture
def run_step(tmp_path, monkeypatch):
    """Runs a program in the place of a step; returns its process and the result."""

    def run(program, seconds=60.0, is_dry=False):
        monkeypatch.setattr(sys, "executable", str(tmp_path / "step"))
        script = f"#!/bin/bash\n{program}\n"
        (tmp_path / "step").write_text(script)
        (tmp_path / "step").chmod(0o755)
        step = StepProcess("tests", tmp_path, seconds, is_dry)
        while not step.is_over():
            time.sleep(0.01)
        return step, step.result()

    return run


def test_a_step_that_hangs_is_ended_with_its_children(run_step, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    _, result = run_step(f"sleep 1000 > {pipe} & exec 3> {pipe}; wait", seconds=1.0)
    has_ended, _, _ = select.select([reader], [], [], 60)
    os.close(reader)

    assert result["rows"] == [["ended", "after 1 s"]]
    assert not result["passed"]
    assert has_ended  # nobody can write into the pipe
    assert json.loads((tmp_path / "tests.json").read_text()) == result


def test_a_dry_run_limits_processor_time_instead(run_step, monkeypatch):
    monkeypatch.setattr(process, "DRY_SECONDS", 0.5)
    _, result = run_step("sleep 1", seconds=0.1, is_dry=True)
    assert not result["rows"]
    _, result = run_step("while true; do :; done", is_dry=True)
    assert result["rows"] == [["ended", "after 0 s"]]


def test_processor_time_counts_descendants():
    loop = "while true; do :; done"
    child = os.posix_spawn("/bin/bash", ["bash", "-c", f"({loop}); :"], os.environ)
    try:
        while processor_seconds(child) < 0.2:
            time.sleep(0.01)
        own = psutil.Process(child).cpu_times()
        assert own.user + own.system < 0.2
    finally:
        for each in psutil.Process(child).children(recursive=True):
            os.kill(each.pid, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_step_that_fails_tells_the_last_line_of_its_output(run_step):
    step, result = run_step("echo one; echo two >&2; exit 3")
    assert result["rows"] == [["failed", "two"]]
    assert step.path.with_suffix(".log").read_text() == "one\ntwo\n"


class Taken:
    """A step that ends at once; fails `tests` the first time."""

    names: list[str] = []

    def __init__(self, name, folder, seconds, is_dry):
        self.name = name
        self.path = folder / f"{name}.json"
        self.names.append(name)

    def is_over(self):
        return True

    def end(self):
        pass

    def result(self):
        passed = self.name != "tests" or self.names.count("tests") > 1
        figures = {"packed documents: speed relative to full windows": 0.95}
        result = {"passed": passed, "rows": [["x", "1"]], "seconds": 2.0}
        result["figures"] = figures if self.name == "packing" else {}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(result))
        return result


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Runs the command without its steps; returns its exit code and the steps that it took."""
    monkeypatch.setattr(Taken, "names", [])
    monkeypatch.setattr(gpu, "StepProcess", Taken)
    monkeypatch.setattr(gpu, "ROOT", tmp_path)
    monkeypatch.setattr(gpu, "best_device", lambda: "cuda")
    facts = {"machine": "NVIDIA X", "commit": "1234567", "torch": "2"}
    monkeypatch.setattr(gpu, "machine", lambda: facts)

    def run(**options):
        n_before = len(Taken.names)
        defaults = {"only": None, "dry_run": False, "copy_to": None, "minutes": 40.0}
        path = tmp_path / "machine" / "gpu"
        code = gpu.main(Namespace(**defaults | options), path)
        return code, Taken.names[n_before:]

    return run


def report(tmp_path):
    return json.loads((tmp_path / "machine" / "gpu.json").read_text())


@pytest.mark.slow
def test_the_command_goes_on_after_failures_and_takes_again_what_has_not_passed(
    command, tmp_path
):
    assert command() == (1, list(STEPS))
    row = {"": "tests", "result": "failed, 2 s"}
    assert row in report(tmp_path)["table"]
    assert command() == (0, ["tests"])
    assert command(only="base") == (0, ["base"])

    for dry_run in (True, False):  # a dry run does not count
        _, steps = command(dry_run=dry_run)
        assert steps == (list(STEPS) if dry_run else [])


def test_the_report_names_the_card_and_judges_each_mark(command, tmp_path, capsys):
    command(copy_to=tmp_path / "copies")
    content = report(tmp_path)
    rows = {row[""]: row for row in content["table"]}

    assert content["machine"]["machine"] == "NVIDIA X"
    assert "on NVIDIA X" in capsys.readouterr().out
    packed = rows["packed documents: speed relative to full windows"]
    assert packed["mark"] == "at least 0.9"
    assert packed["figure"] == "0.95"
    assert packed["result"] == "met"
    unmeasured = set(MARKS) - {packed[""]}
    assert {rows[name]["result"] for name in unmeasured} == {"not measured"}
    assert json.loads((tmp_path / "copies" / "gpu.json").read_text()) == content


def test_steps_without_time_left_are_skipped_and_named(command, tmp_path, capsys):
    late = ["seed0", "seed1", "long"]
    code, steps = command(minutes=3.0)
    assert code == 1  # of `tests`
    assert steps == [name for name in STEPS if name not in late]
    assert "seed0: skipped, " in capsys.readouterr().out
    assert {"": "seed0", "result": "skipped"} in report(tmp_path)["table"]
    assert command(minutes=40.0) == (0, ["tests", *late])


@pytest.mark.parametrize(
    ("mark", "figure", "is_met"),
    [
        (Mark(0.9), 0.9, True),
        (Mark(0.9), 0.89, False),
        (at_most(0.6), 0.6, True),
        (at_most(0.6), 0.61, False),
        (Mark(0.9), float("nan"), False),
    ],
)
def test_a_mark_is_a_bound(mark, figure, is_met):
    assert mark.is_met(figure) == is_met


@pytest.mark.parametrize("name", ["seed0", "long"])
def test_the_trainings_of_a_step_fit_into_its_limit(tmp_path, monkeypatch, name):
    """With 20 seconds for each start, whose code is compiled already."""
    seconds = []
    rows = [defaultdict(float)] * 2

    def train(step, keys, preset="gpu"):
        seconds.append(keys["training.max_seconds"])
        return Namespace(metrics=lambda: rows)

    monkeypatch.setattr(Step, "train", train)
    entry = STEPS[name]
    entry.take(Step(tmp_path / "rows.json", entry.least, is_dry=False))

    assert seconds
    assert sum(seconds) + 20 * len(seconds) <= entry.least
