"""Recipes, and the statistics of shares."""

import math

import numpy as np
import pytest

from auditing.masks.recipes import RECIPES, nearest_recipe, recipe_named
from auditing.statistics import Share, two_sided_p


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_every_recipe_is_nearest_to_itself(recipe):
    assert (
        nearest_recipe(
            recipe.rate or 0.5, tuple(recipe.shares), recipe.unit, recipe.rate is None
        )
        == recipe
    )
    assert recipe_named(recipe.name.upper()) == recipe


def test_another_name_of_a_recipe():
    assert recipe_named("RoBERTa").name == "BERT"


@pytest.mark.parametrize(
    ("t", "freedom", "p"),
    [(2.228, 10, 0.05), (4.587, 10, 0.001), (1.96, 100_000, 0.05)],
)
def test_p_values_of_t_are_those_of_the_tables(t, freedom, p):
    assert two_sided_p(t, freedom) == pytest.approx(p, rel=2e-3)
    assert two_sided_p(math.inf, freedom) == 0


def test_the_error_of_a_share_is_right_for_positions_that_depend():
    """Spans of five are selected together: errors from units hold, errors from positions would be
    too small."""
    rng = np.random.default_rng(3)
    alarms = 0
    for _ in range(300):
        parts = 5 * rng.binomial(40, 0.15, 200)
        share = Share(parts, np.full(200, 200))
        alarms += two_sided_p(share.z(0.15), 199) < 0.05
        assert abs(share.value - 0.15) >= 1.8 * math.sqrt(0.15 * 0.85 / 40_000) * abs(
            share.z(0.15)
        )
    assert 5 <= alarms <= 27  # 15 expected: within 3.2 standard deviations


def test_a_share_of_few_units_raises_no_alarm():
    assert not Share(np.array([9, 9]), np.array([10, 10])).differs(0.1)
    assert Share(np.full(30, 9), np.full(30, 10)).differs(0.1)
    assert math.isnan(Share(np.zeros(3), np.zeros(3)).value)
