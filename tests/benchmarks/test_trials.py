import json
import math
from pathlib import Path

import pytest

from benchmarks.differences import paired
from benchmarks.machine import machine
from benchmarks.trials import Trial, run_trials, trials_of
from tests.conftest import TINY


def rows(values: dict[str, list[float]]) -> list[dict]:
    return [
        {"variant": variant, "seed": seed, "results": {"loss": loss}}
        for variant, losses in values.items()
        for seed, loss in enumerate(losses)
    ]


def test_differences_are_paired_by_seed():
    """Seeds that are far apart, a difference that is the same in each: unpaired it would drown."""
    compared = paired(
        rows({"base": [1.0, 2.0, 3.0], "better": [0.9, 1.91, 2.89], "alike": [1.1, 1.9, 3.0]}), "loss", "base"
    )
    assert compared["better"].difference == pytest.approx(-0.1)
    assert compared["better"].stderr == pytest.approx(0.01 / 3**0.5)
    assert compared["better"].verdict == "better"
    assert compared["alike"].verdict == "tie"
    assert compared["base"].is_tie


def test_a_single_seed_decides_nothing():
    compared = paired(rows({"base": [1.0], "other": [0.1]}), "loss", "base")
    assert math.isnan(compared["other"].stderr)
    assert compared["other"].verdict == "tie"


def test_trials_come_seed_by_seed_with_the_variants_keys_over_the_common_ones():
    trials = trials_of({"a": {"x": 1}, "b": {}}, {"x": 0, "name": "text"}, seeds=2)
    assert [(trial.variant, trial.seed) for trial in trials] == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    assert trials[0].arguments == ["x=1", "name=text", "seed=0"]


def test_a_broken_off_comparison_goes_on_where_it_was(tmp_path, corpus_file, monkeypatch, capsys):
    monkeypatch.setattr("benchmarks.trials.RUNS", tmp_path / "runs")
    here, now = machine() | {"commit": "1234567"}, "1234567"
    monkeypatch.setattr("benchmarks.trials.machine", lambda: here)
    monkeypatch.setattr("benchmarks.trials.commit", lambda: now)
    keys = TINY | {"data.corpus": str(corpus_file), "training.max_steps": 2}
    trials = [Trial("small", seed, keys) for seed in (0, 1)]
    measured: list[Path] = []

    def measure(run) -> dict[str, float]:
        measured.append(run.path)
        return {"loss": run.metrics()[-1]["loss.valid"]}

    path = tmp_path / "results.json"
    first = run_trials(path, trials[:1], measure, 1.0)
    assert [row["seed"] for row in json.loads(path.read_text())["trials"]] == [0]
    both = run_trials(path, trials, measure, 1.0)
    assert both[0] == first[0]  # kept, not trained again
    assert len(measured) == 2
    assert "2 runs, 1 to go" in capsys.readouterr().out
    run_trials(path, [Trial("small", 0, keys | {"training.max_steps": 1})], measure, 1.0)
    assert len(measured) == 3  # other settings are another run
    here, now = here | {"commit": "1234567+"}, "1234567+"
    run_trials(path, trials[:1], measure, 1.0)
    run_trials(path, trials[:1], measure, 1.0)
    assert len(measured) == 5  # what is not committed is never the same
