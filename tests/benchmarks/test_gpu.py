"""`make gpu` rehearsed on a CPU: its steps with tiny shapes, and the command that takes them."""

import json
from argparse import Namespace

import pytest

from benchmarks import gpu, gpu_steps
from benchmarks.gpu_steps import STEPS, Step


@pytest.fixture
def taken(tmp_path):
    """Takes a step with tiny shapes; returns the step."""

    def take(name):
        step = Step(tmp_path / "rows.json", 0.1, is_dry=True)
        STEPS[name](step)
        return step

    return take


@pytest.mark.parametrize(
    "name", ["repeatable", "graph", "agreement", "resume", "ceilings"]
)
def test_a_step_passes_on_a_cpu(taken, name):
    step = taken(name)
    assert step.passed, step.rows


def test_what_is_wrong_fails_its_step_and_is_named(taken, monkeypatch):
    original = gpu_steps.gradients
    factors = []

    def planted(*args):
        factors.append(10.0 * len(factors))
        gradients = original(*args)
        return gradients | {"decoder_bias": gradients["decoder_bias"] * factors[-1]}

    monkeypatch.setattr(gpu_steps, "gradients", planted)

    for name, row in (
        ("agreement", "float32: gradients differ by"),
        ("repeatable", "windows of 64"),
    ):
        step = taken(name)
        assert not step.passed
        assert dict(step.rows)[row].endswith(": failed")

    assert "decoder_bias" in dict(step.rows)[row]


@pytest.mark.parametrize(
    ("name", "limit", "reason"),
    [
        ("x", 60.0, "KeyError"),
        ("tests", 1.0, "stopped after 1 s"),
        ("tests", 0.5, "no time"),
    ],
)
def test_a_step_that_fails_or_takes_too_long_is_reported(tmp_path, name, limit, reason):
    result = gpu.take(name, tmp_path, limit, 0.1, is_dry=True)
    assert not result["passed"]
    assert reason in str(result["rows"][-1])


def test_the_command_goes_on_after_failures_and_takes_again_what_has_not_passed(
    tmp_path, monkeypatch
):
    taken = []
    tables = []
    page = tmp_path / "results.md"
    page.write_text("before\n## Not measured\nafter\n")

    def take(name, *_):
        taken.append(name)
        passed = name != "graph" or taken.count("graph") > 1
        return {"passed": passed, "rows": [["x", 1]], "seconds": 2.0}

    def run(only=None, dry_run=False, machine="machine"):
        """Run the command; returns its exit code and the steps that it took."""
        taken_before = len(taken)
        options = Namespace(only=only, dry_run=dry_run, minutes=40.0)
        code = gpu.main(options, tmp_path / machine / "gpu")
        return code, taken[taken_before:]

    for name, value in {
        "take": take,
        "ROOT": tmp_path,
        "fill_pages": lambda: None,
        "RESULTS_PAGE": page,
        "best_device": lambda: "cuda",
        "machine": lambda: {"commit": "1234567", "torch": "2"},
        "save_results": lambda path, table, steps: tables.append(table),
    }.items():
        monkeypatch.setattr(gpu, name, value)

    assert run() == (1, list(STEPS))
    assert {"step": "graph", "result": "failed", "seconds": "2"} in tables[-1]
    assert run() == (0, ["graph"])
    assert run(only="tests") == (0, ["tests"])

    section = "<!-- from machine/gpu.json -->\n<!-- end -->\n\n## Not measured"
    assert page.read_text().count(section) == 1

    for dry_run in (True, False):  # a dry run does not count
        _, steps = run(dry_run=dry_run, machine="other")
        assert steps == list(STEPS)


@pytest.mark.parametrize("name", ["finalists", "peers"])
def test_the_trainings_of_a_step_fit_into_its_limit(tmp_path, monkeypatch, name):
    """With 45 seconds for the start of each, which compiles."""
    (tmp_path / "winner.json").write_text('{"another": {}}')
    seconds = []

    def train(step, keys):
        seconds.append(keys["training.max_seconds"])

    monkeypatch.setattr(Step, "train", train)
    monkeypatch.setattr(gpu_steps, "median_seconds", lambda *_: "")

    results = {"loss.valid": 1.0, "chars": 1}
    for measure in ("last_losses", "measure"):
        monkeypatch.setattr(gpu_steps, measure, lambda run: results)

    STEPS[name](Step(tmp_path / "rows.json", 1.0, is_dry=False))

    assert len(seconds) > 2
    assert sum(seconds) + 45 * len(seconds) <= 60 * gpu.MINUTES[name]


def test_the_search_trains_the_best_of_its_first_round_again(tmp_path, monkeypatch):
    losses = iter([*range(13, 0, -1), 5, 4])
    monkeypatch.setattr(Step, "train", lambda step, keys: None)
    monkeypatch.setattr(
        gpu_steps, "last_losses", lambda run: {"loss.valid": float(next(losses))}
    )
    STEPS["search"](Step(tmp_path / "rows.json", 1.0, is_dry=False))

    (winner,) = json.loads((tmp_path / "winner.json").read_text())

    assert winner == list(gpu_steps.recipe("gpu")["variants"])[-2]
