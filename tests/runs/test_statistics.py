import numpy as np
import pytest

from runs import statistics
from runs.statistics import (
    Difference,
    differing_keys,
    group_by_settings,
    paired_difference,
    seed_difference,
)

WINDOWS = np.random.default_rng(0).normal(1.2, 0.1, 200)
IGNORED = {"seed", "name"}


def config(seed, d_model=128):
    return {"seed": seed, "name": f"n{seed}", "model.d_model": d_model}


def groups(*shifts, ignored=IGNORED):
    """The groups of several settings with several seeds each; `shifts` has, per setting and seed, a
    number that is added to all window losses."""
    configs = []
    losses = []

    for number, of_setting in enumerate(shifts):
        for seed, shift in enumerate(of_setting):
            configs.append(config(seed, 128 + number))
            losses.append(WINDOWS + shift)

    return group_by_settings(configs, losses, ignored)


def test_runs_that_differ_only_in_ignored_keys_are_one_group():
    shifts = ([0, 0.02], [0.5, 0.52])
    small, large = groups(*shifts)

    assert len(small.losses) == len(large.losses) == 2
    assert small.losses.mean() == pytest.approx(WINDOWS.mean() + 0.01)
    assert statistics.standard_error(small.losses) == pytest.approx(0.01)
    assert small.window_losses == pytest.approx(WINDOWS + 0.01)
    assert differing_keys([small, large]) == {"model.d_model": [128, 129]}
    assert len(groups(*shifts, ignored={"seed"})) == 4  # the names differ


@pytest.mark.parametrize(("seed", "n_losses"), [(1, 2), (0, 1)])
def test_the_order_of_keys_does_not_matter_and_the_same_seed_twice_adds_nothing(
    seed, n_losses
):
    one = config(0) | {"training.stages": [{"until": 1, "seq_len": 64}]}
    other = config(seed) | {"training.stages": [{"seq_len": 64, "until": 1}]}
    (group,) = group_by_settings([one, other], [WINDOWS, WINDOWS], IGNORED)

    assert len(group.losses) == n_losses


def test_a_difference_over_seeds_counts_the_spread_of_both_groups():
    base, other = groups([0, 0.01, 0.02], [0.1, 0.11, 0.12])
    difference = seed_difference(other, base)

    assert difference.mean == pytest.approx(0.1)
    assert difference.stderr == pytest.approx((2 * 0.01**2 / 3) ** 0.5)
    assert difference.degrees_of_freedom == pytest.approx(4)
    assert difference.p_value < 0.001
    assert difference.verdict == "worse"
    assert seed_difference(base, other).verdict == "better"

    # 2.1 standard errors with 2 degrees of freedom
    base, other = groups([0, 0.02], [0.03, 0.05])

    assert seed_difference(other, base).verdict == "tie"


@pytest.mark.parametrize(
    ("first", "second"), [([0], [0.1, 0.2]), ([0, 0.1], [0.2]), ([0], [0.1])]
)
def test_fewer_than_two_seeds_in_a_group_give_no_difference_over_seeds(first, second):
    base, other = groups(first, second)
    assert seed_difference(other, base) is None


def test_a_number_and_its_error_have_as_many_digits():
    assert statistics.with_error("1.2346", 0.00126) == "1.2346 ± 0.0013"
    assert statistics.with_error("+0.100", 0.05) == "+0.100 ± 0.050"

    for unknown in (None, float("nan")):
        assert statistics.with_error("0.10", unknown) == "0.10"


def test_pairing_removes_the_spread_that_both_sides_share():
    noise = np.random.default_rng(1).normal(0.05, 0.05, 200)
    difference = paired_difference(WINDOWS + noise, WINDOWS)

    assert difference.stderr == pytest.approx(noise.std(ddof=1) / 200**0.5)
    assert difference.stderr < WINDOWS.std() / 200**0.5
    assert difference.verdict == "worse"
    assert difference.margin == pytest.approx(1.972 * difference.stderr, rel=1e-3)


def test_a_tie_is_a_difference_whose_interval_contains_zero():
    """The only definition of a tie: just inside and just outside of the interval."""
    t = statistics.t_quantile(0.95, 4)
    for share, verdict in (
        (0.99, "tie"),
        (1.01, "worse"),
        (-0.99, "tie"),
        (-1.01, "better"),
    ):
        difference = Difference(share * t, 1.0, 4)
        assert difference.verdict == verdict
        assert (difference.p_value > 0.05) == (verdict == "tie")


@pytest.mark.parametrize("values", [[1.0], [1.0, 1.0]])
def test_without_a_spread_there_is_no_verdict(values):
    difference = paired_difference(values, [0.0] * len(values))
    assert difference.verdict == "unknown"
    assert difference.p_value is None
    assert difference.margin is None


@pytest.mark.parametrize(
    ("freedom", "t"),
    [(1, 12.706), (2, 4.3027), (4, 2.7764), (9, 2.2622), (1e5, 1.95999)],
)
def test_quantiles_and_p_values_are_those_of_published_tables(freedom, t):
    assert statistics.t_quantile(0.95, freedom) == pytest.approx(t, rel=1e-4)
    assert statistics.two_sided_p(t, freedom) == pytest.approx(0.05, rel=1e-3)
    assert statistics.two_sided_p(0.0, freedom) == pytest.approx(1.0)
