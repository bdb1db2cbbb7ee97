import pytest

from benchmarks import trials
from benchmarks.trials import last_losses, run_trials, trials_of
from tests.conftest import TINY


def test_trials_come_seed_by_seed_with_the_variants_keys_over_the_common_ones():
    found = trials_of({"a": {"x": 1}, "b": {}}, {"x": 0, "name": "text"}, seeds=2)
    assert [(trial["variant"], trial["seed"]) for trial in found] == [
        ("a", 0),
        ("b", 0),
        ("a", 1),
        ("b", 1),
    ]
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
    trial = {"variant": "a", "preset": "modernbert", "seed": 3, "keys": keys}
    (row,) = run_trials(tmp_path / "results", [trial], last_losses, 1.0)
    assert row["results"]["chars"] == 2 * TINY["training.chars_per_step"]
    assert (row["seed"], row["compiled"], row["commit"]) == (3, False, "1234567")
    (run,) = (tmp_path / "runs" / "trial").iterdir()
    config = (run / "config.yaml").read_text()
    assert "seed: 3\n" in config
    assert "model.ngrams: 0\n" in config  # the preset's


@pytest.fixture
def trained(here, monkeypatch):
    """The trials that would have been trained; the commit of their code is `here` unless a test
    changes `commit`."""
    found = []

    def train(trial, *_):
        found.append(trial)
        return trial | {
            "results": {"loss": float(len(found))},
            "wall_seconds": 1.0,
            "commit": trials.commit(),
        }

    monkeypatch.setattr(trials, "_train", train)
    monkeypatch.setattr(trials, "load_corpus", lambda name: None)
    monkeypatch.setattr(trials, "window_losses", lambda corpus: None)
    return found


def test_an_interrupted_comparison_continues_where_it_stopped(tmp_path, here, trained, capsys):
    path, both = (
        tmp_path / "results",
        trials_of({"small": {"training.max_steps": 2}}, {"data.corpus": "play"}, 2),
    )
    first = run_trials(path, both[:1], last_losses, 1.0)
    assert run_trials(path, both, last_losses, 1.0)[0] == first[0]
    assert trained == both  # the first one only once
    output = capsys.readouterr().out
    assert "2 runs, 1 to go" in output
    assert "finished runs are kept in" in output

    other_keys = trials_of({"small": {"training.max_steps": 1}}, {"data.corpus": "play"}, 1)
    run_trials(path, other_keys, last_losses, 1.0)
    assert trained[2:] == other_keys
    here["commit"] = "7654321"
    run_trials(path, both, last_losses, 1.0)
    assert trained[3:] == both


@pytest.mark.parametrize("commit", ["1234567+", "7654321"])
def test_results_of_code_that_changed_before_or_during_the_run_do_not_count(
    commit, tmp_path, here, trained, monkeypatch, capsys
):
    monkeypatch.setattr(trials, "commit", lambda: commit)
    here["commit"] = "1234567" + "+" * commit.endswith("+")
    for _ in range(2):
        run_trials(
            tmp_path / "results",
            trials_of({"small": {}}, {"data.corpus": "play"}, 1),
            last_losses,
            1.0,
        )
    assert len(trained) == 2
    assert ("finished runs are not kept" in capsys.readouterr().out) == commit.endswith("+")


def test_a_run_that_another_process_has_finished_meanwhile_counts_instead(
    tmp_path, trained, monkeypatch
):
    """The other process may have used its result already."""
    own, inner, alone = trials_of({"small": {}}, {"data.corpus": "play"}, 1), [], trials._train

    def train(trial, *_):
        if not inner:
            monkeypatch.setattr(trials, "_train", alone)
            inner.extend(run_trials(tmp_path / "results-seeds-1", own, last_losses, 1.0))
        return alone(trial)

    monkeypatch.setattr(trials, "_train", train)
    assert run_trials(tmp_path / "results", own, last_losses, 1.0) == inner
    assert len(trained) == 2
