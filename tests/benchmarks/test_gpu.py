"""`make gpu` rehearsed on a CPU: its steps with tiny shapes, and the command that takes them."""

import json
from argparse import Namespace

import pytest

from benchmarks import gpu, gpu_steps
from benchmarks.gpu_steps import STEPS, Step


@pytest.fixture
def rows(tmp_path):
    """Takes a step with tiny shapes; returns its rows, and whether it has passed."""

    def take(name):
        step = Step(tmp_path / "rows.json", 0.1, is_dry=True)
        STEPS[name](step)
        return dict(step.rows), step.passed

    return take


@pytest.mark.parametrize("name", ["repeatable", "graph", "agreement", "resume", "ceilings"])
def test_a_step_passes_on_a_cpu(rows, name):
    found, passed = rows(name)
    assert passed, found


def test_what_is_wrong_fails_its_step_and_is_named(rows, monkeypatch):
    original, calls = gpu_steps.gradients, []

    def planted(*args):
        calls.append(args)
        found = original(*args)
        return found | {"decoder_bias": found["decoder_bias"] * (1 + 10 * len(calls))}

    monkeypatch.setattr(gpu_steps, "gradients", planted)
    for name, what in (
        ("agreement", "float32: gradients differ by"),
        ("repeatable", "windows of 64"),
    ):
        found, passed = rows(name)
        assert not passed
        assert found[what].endswith(": failed")
    assert "decoder_bias" in found[what]


def test_a_step_that_could_not_be_repeated_at_all_does_not_pass(rows, monkeypatch):
    def planted(*args):
        raise RuntimeError("no memory")

    monkeypatch.setattr(gpu_steps, "gradients", planted)
    with pytest.raises(RuntimeError, match="no memory"):
        rows("repeatable")


def test_a_step_that_fails_or_takes_too_long_is_reported(tmp_path):
    for name, limit, reason in (
        ("x", 60.0, "KeyError"),
        ("tests", 1.0, "stopped after 1 s"),
        ("tests", 0.5, "no time"),
    ):
        result = gpu.take(name, tmp_path, limit, 0.1, is_dry=True)
        assert not result["passed"]
        assert reason in str(result["rows"][-1])


def test_the_command_goes_on_after_failures_and_takes_again_what_has_not_passed(
    tmp_path, monkeypatch
):
    taken, tables, path = [], [], tmp_path / "machine" / "gpu"

    def take(name, *_):
        taken.append(name)
        return {
            "passed": name != "graph" or taken.count("graph") > 1,
            "rows": [["x", 1]],
            "seconds": 2.0,
        }

    replaced = {
        "take": take,
        "ROOT": tmp_path,
        "PAGES": [],
        "RESULTS_PAGE": tmp_path / "results.md",
    }
    replaced |= {
        "best_device": lambda: "cuda",
        "machine": lambda: {"commit": "1234567", "torch": "2"},
    }
    replaced |= {"save_results": lambda path, table, steps: tables.append(table)}
    for name, value in replaced.items():
        monkeypatch.setattr(gpu, name, value)
    gpu.RESULTS_PAGE.write_text("before\n## Not measured\nafter\n")
    assert gpu.main(Namespace(only=None, dry_run=False, minutes=40.0), path) == 1
    assert taken == list(gpu.MINUTES)
    assert set(taken) == set(STEPS)
    assert {"step": "graph", "result": "failed", "seconds": "2"} in tables[-1]
    assert gpu.main(Namespace(only=None, dry_run=False, minutes=40.0), path) == 0
    assert gpu.main(Namespace(only="tests", dry_run=False, minutes=40.0), path) == 0
    assert taken[len(gpu.MINUTES) :] == ["graph", "tests"]
    assert (
        gpu.RESULTS_PAGE.read_text().count(
            "<!-- from machine/gpu.json -->\n<!-- end -->\n\n## Not measured"
        )
        == 1
    )
    for dry_run in (True, False):  # a dry run does not count
        gpu.main(Namespace(only=None, dry_run=dry_run, minutes=40.0), tmp_path / "other" / "gpu")
    assert taken[len(gpu.MINUTES) + 2 :] == 2 * list(gpu.MINUTES)


@pytest.mark.parametrize("name", ["finalists", "peers"])
def test_the_trainings_of_a_step_fit_into_its_limit(tmp_path, monkeypatch, name):
    """With 45 seconds for the start of each, which compiles."""
    (tmp_path / "winner.json").write_text('{"another": {}}')
    seconds = []

    def train(words, program):
        seconds.extend(
            float(word.partition("=")[2])
            for word in words
            if word.startswith("training.max_seconds=")
        )
        return None, ""

    row = {"loss.valid": 1.0, "chars": 1}
    replaced = {"train": train, "last_losses": lambda run: row, "measure": lambda run: row}
    for what, value in (replaced | {"median_seconds": lambda *_: ""}).items():
        monkeypatch.setattr(gpu_steps, what, value)
    STEPS[name](Step(tmp_path / "rows.json", 1.0, is_dry=False))
    assert len(seconds) > 2
    assert sum(seconds) + 45 * len(seconds) <= 60 * gpu.MINUTES[name]


def test_the_search_trains_the_best_of_its_first_round_again(tmp_path, monkeypatch):
    losses = iter([*range(13, 0, -1), 5, 4])
    monkeypatch.setattr(gpu_steps, "train", lambda words, program: (None, ""))
    monkeypatch.setattr(gpu_steps, "last_losses", lambda run: {"loss.valid": float(next(losses))})
    STEPS["search"](Step(tmp_path / "rows.json", 1.0, is_dry=False))
    (winner,) = json.loads((tmp_path / "winner.json").read_text())
    assert winner == list(gpu_steps.recipe("gpu")["variants"])[-2]
