import numpy as np
import pytest

from runs.statistics import compare, differing_keys, group_by_settings, two_sided_p

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
    assert difference.degrees_of_freedom == pytest.approx(4)
    assert difference.verdict.startswith("worse (p < 0.001")
    assert compare(base, other).verdict.startswith("better (p < 0.001")


@pytest.mark.parametrize(
    ("t", "freedom", "p"), [(12.706, 1, 0.05), (4.303, 2, 0.05), (2.776, 4, 0.05), (1.96, 1e5, 0.05)]
)
def test_p_values_are_those_of_the_tables(t: float, freedom: float, p: float):
    assert two_sided_p(t, freedom) == pytest.approx(p, rel=2e-3)
    assert two_sided_p(0.0, freedom) == pytest.approx(1.0)


def test_two_seeds_a_side_are_little_to_be_sure_with():
    configs = [config(0), config(1), config(0, **{"model.d_model": 64}), config(1, **{"model.d_model": 64})]
    base, other = group_by_settings(configs, [WINDOWS, WINDOWS + 0.02, WINDOWS + 0.03, WINDOWS + 0.05])
    assert compare(other, base).verdict.startswith("a tie")  # 2.1 standard errors, but with 2 degrees of freedom


def test_the_same_seed_twice_tells_nothing_more():
    (group,) = group_by_settings([config(0), config(0)], [WINDOWS, WINDOWS])
    assert group.stderr is None


def test_without_a_spread_there_is_no_verdict():
    base, other = group_by_settings([config(0), config(0, **{"model.d_model": 64})], [WINDOWS[:1], WINDOWS[:1] + 1])
    assert compare(other, base).verdict == "too little to tell"


def test_single_runs_are_compared_window_by_window():
    noise = np.random.default_rng(1).normal(0.05, 0.05, 200)
    base, other = group_by_settings([config(0), config(0, **{"model.d_model": 64})], [WINDOWS, WINDOWS + noise])
    difference = compare(other, base)
    assert difference.source == "windows"
    assert difference.stderr == pytest.approx(noise.std(ddof=1) / 200**0.5)
    # The windows differ among themselves far more than the two runs do: unpaired it would be lost.
    assert difference.stderr < WINDOWS.std() / 200**0.5


def test_what_chance_alone_would_give_is_a_tie():
    noise = np.random.default_rng(2).normal(0.0, 0.05, 200)
    base, other = group_by_settings([config(0), config(0, **{"model.d_model": 64})], [WINDOWS, WINDOWS + noise])
    assert compare(other, base).verdict.startswith("a tie")
