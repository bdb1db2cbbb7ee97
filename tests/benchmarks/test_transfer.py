import numpy as np
import pytest

from benchmarks.command import recipe
from benchmarks.transfer import BASE, interval_of, spread_of
from configs.command_line import PRESETS, read_config, resolve


def test_every_candidate_is_another_model_or_training():
    base, candidates = read_config(PRESETS / f"{BASE}.yaml"), recipe("transfer")["candidates"]
    resolved = [resolve(base, keys) for keys in candidates.values()]
    assert all(resolved.count(values) == 1 for values in resolved)


def test_the_interval_of_seeds_and_test_texts_covers_the_truth():
    """Planted: an accuracy of 0.7 that varies with the seed and the text. At least 95% of 400 intervals hold it."""
    generator = np.random.Generator(np.random.PCG64(0))
    held = 0
    for _ in range(400):
        of_texts, of_seeds = generator.normal(0, 0.2, 200), generator.normal(0, 0.02, 3)
        runs = []
        for of_seed in of_seeds:
            chances = np.clip(0.7 + of_seed + of_texts, 0, 1)
            runs.append(spread_of((generator.random((2, 200)) < chances).astype(float), np.ones(200)))
        score = interval_of(runs)
        held += abs(score["mean"] - 0.7) <= score["margin"]
    assert 0.95 <= held / 400 <= 1.0


def test_the_mean_counts_labels_and_not_examples():
    right, counts = np.array([[1.0, 9.0], [3.0, 5.0]]), np.array([4.0, 12.0])
    assert spread_of(right, counts)["mean"] == pytest.approx(9 / 16)
    assert interval_of([spread_of(right, counts)])["margin"] is None
