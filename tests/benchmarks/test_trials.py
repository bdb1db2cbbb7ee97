import json

import pytest

from benchmarks import trials
from benchmarks.trials import last_losses, run_trials, trials_of
from tests.conftest import TINY


def test_trials_come_seed_by_seed_with_the_variants_keys_over_the_common_ones():
    found = trials_of({"a": {"x": 1}, "b": {}}, {"x": 0, "name": "text"}, seeds=2)
    assert [(trial["variant"], trial["seed"]) for trial in found] == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    assert [trial["keys"]["x"] for trial in found] == [1, 0, 1, 0]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A committed checkout whose commit a test can change."""
    here = {"commit": "1234567", "torch": "2", "threads": "1"}
    monkeypatch.setattr(trials, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(trials, "machine", lambda: here)
    monkeypatch.setattr(trials, "commit", lambda: here["commit"])
    return here


def test_a_trial_trains_with_its_keys_and_is_measured(tmp_path, corpus_file, here):
    keys = TINY | {"data.corpus": str(corpus_file), "training.max_steps": 2}
    measured = run_trials(tmp_path / "results", [{"variant": "a", "seed": 3, "keys": keys}], last_losses, 1.0)
    (row,) = measured["trials"]
    assert row["results"]["chars"] == 2 * TINY["training.chars_per_step"]
    assert (row["seed"], row["compiled"], row["commit"]) == (3, False, "1234567")
    assert json.loads((tmp_path / "results.json").read_text()) == measured
    (run,) = (tmp_path / "runs" / "trial").iterdir()
    assert "seed: 3\n" in (run / "config.yaml").read_text()


def test_an_interrupted_comparison_continues_where_it_stopped(tmp_path, here, monkeypatch, capsys):
    trained = []

    def train(trial, *_):
        trained.append(trial)
        return trial | {"results": {"loss": 1.0}, "wall_seconds": 1.0, "commit": trials.commit()}

    monkeypatch.setattr(trials, "_train", train)
    monkeypatch.setattr(trials, "load_corpus", lambda name: None)
    monkeypatch.setattr(trials, "counting_losses", lambda corpus: None)
    path, both = tmp_path / "results", trials_of({"small": {"training.max_steps": 2}}, {"data.corpus": "play"}, 2)
    first = run_trials(path, both[:1], last_losses, 1.0)
    assert run_trials(path, both, last_losses, 1.0)["trials"][0] == first["trials"][0]
    assert trained == both  # the first one only once
    assert "2 runs, 1 to go" in capsys.readouterr().out

    other_keys = trials_of({"small": {"training.max_steps": 1}}, {"data.corpus": "play"}, 1)
    run_trials(path, other_keys, last_losses, 1.0)
    assert trained[2:] == other_keys
    here["commit"] = "7654321"
    run_trials(path, both, last_losses, 1.0)
    assert trained[3:] == both
    here["commit"] = "7654321+"  # with uncommitted changes, which cannot be told apart
    run_trials(path, both, last_losses, 1.0)
    run_trials(path, both, last_losses, 1.0)
    assert trained[5:] == both + both


@pytest.mark.parametrize(("commit", "times"), [("1234567", 1), ("1234567+", 2), ("7654321", 2)])
def test_results_of_code_that_changed_during_the_run_do_not_count(commit, times, tmp_path, here, monkeypatch):
    trained = []

    def train(trial, *_):
        trained.append(trial)
        return trial | {"results": {"loss": 1.0}, "wall_seconds": 1.0, "commit": commit}

    monkeypatch.setattr(trials, "_train", train)
    monkeypatch.setattr(trials, "load_corpus", lambda name: None)
    monkeypatch.setattr(trials, "counting_losses", lambda corpus: None)
    for _ in range(2):
        run_trials(tmp_path / "results", trials_of({"small": {}}, {"data.corpus": "play"}, 1), last_losses, 1.0)
    assert len(trained) == times


def test_a_run_that_another_process_has_finished_meanwhile_counts_instead(tmp_path, here, monkeypatch):
    """The other process may have used its result already."""

    def train(trial, *_):
        trained.append(trial)
        if len(trained) == 1:
            run_trials(tmp_path / "results-seeds-1", own, last_losses, 1.0)
        return trial | {"results": {"loss": float(len(trained))}, "wall_seconds": 1.0, "commit": "1234567"}

    trained = []
    monkeypatch.setattr(trials, "_train", train)
    monkeypatch.setattr(trials, "load_corpus", lambda name: None)
    monkeypatch.setattr(trials, "counting_losses", lambda corpus: None)
    own = trials_of({"small": {}}, {"data.corpus": "play"}, 1)
    outer = run_trials(tmp_path / "results", own, last_losses, 1.0)
    inner = json.loads((tmp_path / "results-seeds-1.json").read_text())
    assert len(trained) == 2
    assert outer["trials"] == inner["trials"]
