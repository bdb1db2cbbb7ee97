import numpy as np
import pytest

from training.comparison import compare, differing_keys, group_by_settings

WINDOWS = np.random.default_rng(0).normal(1.2, 0.1, 200)


def config(seed: int, **changes):
    return {"seed": seed, "name": f"n{seed}", "model.d_model": 128, "training.stages": [{"until": 1}], **changes}


def test_runs_that_differ_in_their_seed_alone_are_one_group():
    configs = [config(0), config(1, **{"model.d_model": 64}), config(2), config(3, **{"model.d_model": 64})]
    losses = [WINDOWS, WINDOWS + 0.5, WINDOWS + 0.02, WINDOWS + 0.52]
    small, large = group_by_settings(configs, losses)
    assert (len(small.losses), len(large.losses)) == (2, 2)
    assert small.mean == pytest.approx(WINDOWS.mean() + 0.01)
    assert small.stderr == pytest.approx(0.01)
    assert differing_keys([small, large]) == {"model.d_model": [128, 64]}


def test_a_difference_between_seeds_counts_the_spread_of_seeds():
    configs = [config(s) for s in range(3)] + [config(s, **{"model.d_model": 64}) for s in range(3)]
    losses = [WINDOWS + shift for shift in (0, 0.01, 0.02, 0.1, 0.11, 0.12)]
    base, other = group_by_settings(configs, losses)
    difference = compare(other, base)
    assert difference.source == "seeds"
    assert difference.mean == pytest.approx(0.1)
    assert difference.stderr == pytest.approx((2 * 0.01**2 / 3) ** 0.5)
    assert difference.verdict.startswith("worse (12.")
    assert compare(base, other).verdict.startswith("better (12.")


def test_single_runs_are_compared_window_by_window():
    noise = np.random.default_rng(1).normal(0.05, 0.05, 200)
    base, other = group_by_settings([config(0), config(0, **{"model.d_model": 64})], [WINDOWS, WINDOWS + noise])
    difference = compare(other, base)
    assert difference.source == "windows"
    assert difference.stderr == pytest.approx(noise.std(ddof=1) / 200**0.5)
    # The windows differ among themselves far more than the two runs do: unpaired it would be lost.
    assert difference.stderr < WINDOWS.std() / 200**0.5


def test_under_two_standard_errors_is_a_tie():
    noise = np.random.default_rng(2).normal(0.0, 0.05, 200)
    base, other = group_by_settings([config(0), config(0, **{"model.d_model": 64})], [WINDOWS, WINDOWS + noise])
    assert compare(other, base).verdict.startswith("a tie")
