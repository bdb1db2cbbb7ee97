"""Recipes, the signatures of bugs in shares, and the statistics that tell them apart."""

import math

import numpy as np
import pytest
from auditing.masks.shares import Found, fits, signature

from auditing.masks.recipes import RECIPES, SIGNATURES, nearest_recipe, recipe_named
from auditing.statistics import Share, chi_square_p, share_of, two_sided_p


def found(*shares: float, stderr: float = 0.001) -> Found:
    return Found(tuple(Share(share, stderr, 256) for share in shares), (0.0,))  # type: ignore[arg-type]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_every_recipe_is_nearest_to_itself(recipe):
    assert nearest_recipe(recipe.rate or 0.5, recipe.shares, recipe.unit, recipe.rate is None) == recipe
    assert recipe_named(recipe.name.upper()) == recipe


def test_other_names_of_recipes():
    assert recipe_named("RoBERTa").name == "BERT"
    with pytest.raises(ValueError, match="choose one of BERT"):
        recipe_named("BART")


@pytest.mark.parametrize(("shares", "slug", "cause"), SIGNATURES)
def test_shares_of_bugs_are_told_apart(shares, slug, cause):
    assert signature(found(*shares)) == (slug, cause)


def test_81_10_9_is_not_80_10_10():
    shares = found(0.81, 0.10, 0.09)
    assert not fits(shares, (0.8, 0.1, 0.1))
    assert fits(found(0.802, 0.099, 0.099), (0.8, 0.1, 0.1))
    assert signature(found(0.4, 0.3, 0.3)) == ("other-shares", "")


def test_a_random_token_that_is_the_original_looks_unchanged():
    """With 65 ids drawn, 10% random tokens are seen as 9.85% random and 10.15% unchanged."""
    exact = Found(tuple(Share(s, 1e-5, 256) for s in (0.5, 0.49, 0.01)), (0.0, 0.02))  # type: ignore[arg-type]
    assert fits(exact, (0.5, 0.5, 0.0))
    assert not fits(Found(exact.parts, (0.0,)), (0.5, 0.5, 0.0))


@pytest.mark.parametrize(("t", "freedom", "p"), [(2.228, 10, 0.05), (4.587, 10, 0.001), (1.96, 100_000, 0.05)])
def test_p_values_of_t_are_those_of_the_tables(t, freedom, p):
    assert two_sided_p(t, freedom) == pytest.approx(p, rel=2e-3)
    assert two_sided_p(math.inf, freedom) == 0


def test_p_values_of_chi_square_are_those_of_the_tables():
    expected = np.full(11, 100.0)
    counts = expected.copy()
    counts[0] += math.sqrt(18.307 / 2 * 100)
    counts[1] -= math.sqrt(18.307 / 2 * 100)
    assert chi_square_p(counts, expected) == pytest.approx(0.05, rel=1e-3)


def test_the_error_of_a_share_is_right_for_positions_that_depend():
    """Spans of five are selected together: errors from units hold, errors from positions would be too small."""
    rng = np.random.default_rng(3)
    alarms = 0
    for _ in range(300):
        parts = 5 * rng.binomial(40, 0.15, 200)
        share = share_of(parts, np.full(200, 200))
        alarms += share.p(0.15) < 0.05
        assert share.stderr > 1.8 * math.sqrt(0.15 * 0.85 / 40_000)
    assert 5 <= alarms <= 27  # 15 expected: within 3.2 standard deviations


def test_a_share_of_few_units_raises_no_alarm():
    assert not share_of(np.array([9, 9]), np.array([10, 10])).differs(0.1)
    assert share_of(np.full(30, 9), np.full(30, 10)).differs(0.1)
    assert math.isnan(share_of(np.zeros(3), np.zeros(3)).value)
