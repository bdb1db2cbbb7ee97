from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import transfer
from benchmarks.report import by_variant
from benchmarks.transfer import interval_of, main, spread_of, table_of_tasks
from configs.keys import ConfigError
from data.corpus import TINY_SHAKESPEARE
from data.play.grammar import PLAY
from data.tasks import TASKS
from trained.task_results import FROM_SCRATCH, NGRAMS, PRETRAINED, PROBE


def test_the_interval_of_seeds_and_test_texts_covers_the_truth():
    """Planted: an accuracy of 0.7 that varies with the seed and the text. Most of 400 intervals
    hold it."""
    generator = np.random.default_rng(0)
    held = 0

    for _ in range(400):
        of_texts = generator.normal(0, 0.2, 200)
        of_seeds = generator.normal(0, 0.02, (3, 1))
        chances = np.clip(0.7 + of_seeds + of_texts, 0, 1)
        right = generator.random((2, 3, 200)) < chances

        runs = []
        for i in range(3):
            runs.append(spread_of(right[:, i].astype(float), np.ones(200)))

        score = interval_of(runs)
        held += abs(score["mean"] - 0.7) <= score["margin"]

    assert held / 400 >= 0.93


@pytest.mark.parametrize("mean", [0.1, 0.213])
def test_runs_with_equal_scores_have_the_interval_of_the_test_texts(mean):
    interval = interval_of([{"mean": mean, "variance": 1e-4}] * 3)
    assert interval["margin"] == pytest.approx(0.0196, rel=1e-2)


def test_the_mean_counts_labels_and_not_examples():
    right = np.array([[1.0, 9.0], [3.0, 5.0]])
    counts = np.array([4.0, 12.0])

    assert spread_of(right, counts)["mean"] == pytest.approx(9 / 16)
    assert interval_of([spread_of(right, counts)])["margin"] is None


def planted(variant, seed, accuracy):
    """The results of a run on two tasks with a ceiling of 0.9, whose baselines reach 0.5."""

    def spread(mean):
        return {"mean": mean, "variance": 1e-6}

    scores = {
        PRETRAINED: spread(accuracy),
        PROBE: spread(0.6),
        FROM_SCRATCH: spread(0.55),
        NGRAMS: spread(0.5),
    }
    gains = {FROM_SCRATCH: spread(accuracy - 0.55), NGRAMS: spread(accuracy - 0.5)}
    of_task = {"scores": scores, "gains": gains, "ceiling": 0.9}
    tasks = dict.fromkeys(TASKS[PLAY], of_task)
    results = {"loss.valid": 0.6, "chars": 1e6, "corpus": PLAY, "tasks": tasks}
    return {"variant": variant, "seed": seed, "results": results}


def test_the_table_says_what_the_first_preset_beats():
    rows = [planted("base", seed, 0.7 + 0.001 * seed) for seed in range(3)]
    rows += [planted("quick", seed, 0.55 + 0.001 * seed) for seed in range(3)]
    first, *_, losses = table_of_tasks(by_variant(rows))

    assert first["base"].startswith("0.701 ±")
    assert first["gap closed"] == "50%"
    assert first["base is better than"] == "all"
    assert losses == {
        "": "`loss.valid` on play",
        "base": "0.600 ± 0.000",
        "quick": "0.600 ± 0.000",
    }


def test_presets_and_the_peer_are_trained_on_both_texts_and_measured_anew_with_other_labels(
    tmp_path, monkeypatch
):
    """Finished runs are found again by their keys and facts, which hold all that decides a
    result."""
    trials = []

    def run_trials(path, variants, seeds, measure, seconds_per_run, **facts):
        trials.extend(keys | facts for keys in variants.values())
        return [planted(name, 0, 0.7) for name in variants]

    def compare(presets, labels=64, draws=2):
        options = {"presets": presets, "labels": labels, "draws": draws}
        main(SimpleNamespace(**options, seconds=600.0, seeds=1), tmp_path / "x")

    monkeypatch.setattr(transfer, "run_trials", run_trials)
    compare(["base", "peer"])
    compare(["base"], labels=16)
    compare(["base"], draws=3)

    assert all(trials.count(trial) == 1 for trial in trials)
    texts = [trial["data.corpus"] for trial in trials[:4]]
    assert texts == [PLAY, PLAY, TINY_SHAKESPEARE, TINY_SHAKESPEARE]
    assert trials[1]["model.architecture"] == "benchmarks/models.py:modernbert"

    with pytest.raises(ConfigError, match="unknown preset 'bse': choose from base"):
        compare(["bse"])
