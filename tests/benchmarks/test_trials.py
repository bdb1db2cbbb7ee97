import pytest

from benchmarks import trials
from benchmarks.trials import last_losses, run_trials
from tests.conftest import TINY

SMALL = {"small": {"data.corpus": "play"}}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A committed checkout whose commit a test can change."""
    here = {"commit": "1234567", "torch": "2", "threads": "1"}
    monkeypatch.setattr(trials, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(trials, "machine", lambda: here)
    monkeypatch.setattr(trials, "commit", lambda: here["commit"])
    return here


def test_a_trial_trains_with_its_keys_and_is_measured(tmp_path, text_file, here):
    changes = {
        "preset": "modernbert",
        "data.corpus": str(text_file),
        "training.max_steps": 2,
    }
    (row,) = run_trials(
        tmp_path / "results", {"a": TINY | changes}, 1, last_losses, 1.0
    )

    assert row["results"]["chars"] == 2 * TINY["training.chars_per_step"]
    assert row["commit"] == "1234567"

    (run,) = (tmp_path / "runs" / "trial").iterdir()
    config = (run / "config.yaml").read_text()

    assert "seed: 0\n" in config
    assert "model.ngrams: 0\n" in config  # the preset's


@pytest.fixture
def trained(here, monkeypatch):
    """The variants and seeds that would have been trained; the commit of their code is `here`
    unless a test changes `commit`."""
    trained = []

    def train(trial, _):
        trained.append((trial["variant"], trial["seed"]))
        results = {"loss": float(len(trained))}
        return trial | {
            "results": results,
            "wall_seconds": 1.0,
            "commit": trials.commit(),
        }

    monkeypatch.setattr(trials, "_train", train)
    for reference in ("load_corpus", "window_losses"):
        monkeypatch.setattr(trials, reference, lambda _: None)

    return trained


def test_trials_come_seed_by_seed_with_the_variants_keys_over_the_common_ones(
    tmp_path, trained
):
    variants = SMALL | {"large": {"data.corpus": "play", "training.evaluations": 2}}
    rows = run_trials(tmp_path / "results", variants, 2, last_losses, 1.0)

    assert trained == [("small", 0), ("large", 0), ("small", 1), ("large", 1)]
    assert [row["keys"]["training.evaluations"] for row in rows] == [1, 2, 1, 2]


def test_an_interrupted_comparison_continues_where_it_stopped(
    tmp_path, here, trained, capsys
):
    def run(variants=SMALL, seeds=2):
        return run_trials(tmp_path / "results", variants, seeds, last_losses, 1.0)

    first = run(seeds=1)

    assert run()[0] == first[0]
    assert trained == [("small", 0), ("small", 1)]  # the first one only once

    output = capsys.readouterr().out
    assert "2 runs, 1 to go" in output
    assert "finished runs are kept in" in output

    run({"small": SMALL["small"] | {"training.max_steps": 1}})
    here["commit"] = "7654321"
    run()

    assert len(trained) == 6


@pytest.mark.parametrize("commit", ["1234567+", "7654321"])
def test_results_of_code_that_changed_before_or_during_the_run_do_not_count(
    commit, tmp_path, here, trained, monkeypatch, capsys
):
    monkeypatch.setattr(trials, "commit", lambda: commit)
    here["commit"] = "1234567" + "+" * commit.endswith("+")
    for _ in range(2):
        run_trials(tmp_path / "results", SMALL, 1, last_losses, 1.0)

    assert len(trained) == 2
    assert ("finished runs are not kept" in capsys.readouterr().out) == commit.endswith(
        "+"
    )
