"""The law is recovered from noisy runs, and its intervals cover what they promise."""

from functools import cache, partial
from itertools import product

import numpy as np
import pytest

from planning import law
from planning.law import FRESH, Law, Run, fit, priors
from tests.conftest import one_line

SIZES = (10_000, 40_000, 160_000)
LENGTHS = (200_000, 600_000, 1_800_000, 5_400_000)
LADDER = list(product(SIZES, LENGTHS))
FLOOR = 0.03
NOISE = 0.02
REPEATS = 10.0
# exponents
A = 0.5
S = 0.3
B = 1.4
C = 0.5
SIZE_UNIT = 40_000
LENGTH_UNIT = 1_000_000


def planted(n_weights, n_chars, n_text=FRESH):
    """The loss by a law that the fit does not know."""
    size = n_weights / SIZE_UNIT
    start = n_chars / LENGTH_UNIT
    worth = n_chars

    if n_chars > n_text:
        epochs_again = n_chars / n_text - 1
        worth_again = REPEATS * (1 - np.exp(-epochs_again / REPEATS))
        worth = n_text * (1 + worth_again)

    of_size = 0.05 * size**-A
    of_length = 0.4 * (worth / LENGTH_UNIT) ** -S
    of_start = 0.15 * start**-B * size**-C
    return FLOOR + of_size + of_length + of_start


def ladder(noise=NOISE, n_text=FRESH):
    random = np.random.default_rng(0)
    runs = []

    for n_weights, n_chars in LADDER:
        excess = planted(n_weights, n_chars, n_text) - FLOOR
        loss = FLOOR + excess * np.exp(noise * random.standard_normal())
        runs.append(Run(n_weights, n_chars, loss))

    return runs


fitted = cache(partial(fit, ladder()))  # by the floor that is known


@pytest.mark.parametrize("floor", [FLOOR, None])
def test_a_planted_law_is_recovered(floor):
    result = fitted(floor=floor)
    errors = {1: (A, 0.3), 3: (S, 0.15), 5: (B, 0.15), 6: (C, 0.15)}

    for i, (exponent, error) in errors.items():
        low, middle, high = np.quantile(result.draws[i], (0.025, 0.5, 0.975))
        assert low < exponent < high
        assert middle == pytest.approx(exponent, abs=error)

    # the runs tell more about s than the prior
    width = np.diff(np.quantile(result.draws[3], (0.025, 0.975)))

    deviation_of_prior = priors(floor)[1][3]
    assert width < 0.9 * 2 * 1.96 * deviation_of_prior

    low, high = np.quantile(result.floors, (0.025, 0.975))
    assert low <= FLOOR <= high  # the runs hardly tell an unknown floor

    point = (320_000, 10_000_000)
    assert result.predict(*point).loss == pytest.approx(planted(*point), abs=0.02)


def test_errors_of_short_runs_are_not_taken_for_noise_of_long_ones():
    """The beginning of training may differ from a power law by a tenth."""
    runs = []
    for i, run in enumerate(ladder(noise=0.0)):
        size = run.n_weights / SIZE_UNIT
        start = 0.15 * (run.n_chars / LENGTH_UNIT) ** -B * size**-C
        error = 0.1 * start if i % 2 else -0.1 * start
        runs.append(run._replace(loss=run.loss + error))

    result = fit(runs)

    assert np.median(result.draws[7]) < np.log(0.02)


def test_an_unknown_floor_makes_predictions_far_beyond_the_ladder_less_certain(
    monkeypatch,
):
    # equal priors: only the floor differs
    monkeypatch.setattr(law, "PLAY_PRIORS", law.PRIORS)
    known = fit(ladder(), floor=FLOOR).predict(640_000, 5_000_000_000)
    unknown = fitted(floor=None).predict(640_000, 5_000_000_000)

    assert known.low < known.loss < known.high
    assert unknown.high - unknown.low > 1.1 * (known.high - known.low)


def test_predictions_far_beyond_the_ladder_are_less_certain():
    result = fitted(floor=FLOOR)
    relative = []
    for factor in (1, 10, 100):
        predicted = result.predict(160_000, factor * 5_400_000)
        low, middle, high = np.array(predicted) - FLOOR
        relative.append((high - low) / middle)

    assert relative == sorted(relative)


@pytest.mark.parametrize(
    "runs",
    [[], ladder()[:3], ladder()[:4], [run for run in ladder() if run.n_chars < 10**6]],
)
def test_too_few_runs_are_refused(runs):
    with one_line(ValueError, "not enough runs to extrapolate from"):
        fit(runs)


@pytest.mark.parametrize("floor", [FLOOR, None])
@pytest.mark.slow
def test_intervals_cover_80_percent_of_simulated_runs(floor, monkeypatch):
    """Laws come from the priors, and each ladder of twelve runs predicts one at ten times its
    compute."""
    random = np.random.default_rng(0)
    n = 150
    points = np.array([*LADDER, (640_000, 13_500_000)], dtype=float).T
    means, deviations = priors(floor)
    normal = random.standard_normal((n, len(means)))
    draws = (means + deviations * normal).T
    draws[law.EXPONENTS] = np.abs(draws[law.EXPONENTS])

    runs = np.vstack([points, np.linspace(1, 2, points.shape[1])])
    excess, deviation = Law(runs, FRESH, FLOOR, draws).excess_and_deviation(*points)
    losses = excess * np.exp(deviation * random.standard_normal(deviation.shape))
    if floor is None:
        lowest = losses[:, :-1].min(1, keepdims=True)
        losses += lowest * np.exp(draws[-1])[:, None]  # the logit of its share
    else:
        losses += floor

    # [3, n, n_points]
    sizes, lengths = np.broadcast_to(points[:, None], (2, *losses.shape))
    runs = np.stack([sizes, lengths, losses])
    monkeypatch.setattr(law, "STEPS", 200)
    result = law.drawn(runs[..., :-1], FRESH, floor)  # at once
    inside = 0

    for i, loss in enumerate(losses[:, -1]):
        one = Law(result.runs[:, i], FRESH, floor, result.draws[:, i])
        predicted = one.predict(*points[:, -1])
        inside += predicted.low <= loss <= predicted.high

    assert 0.7 < inside / n < 0.9  # three standard errors around 80%


def test_repetitions_are_worth_less_than_fresh_text():
    text = 40_000
    result = fit(ladder(n_text=text), n_text=text, floor=FLOOR)
    fresh = Law(result.runs, FRESH, FLOOR, result.draws)

    def excess(law, n_chars):
        return law.excess_and_deviation(160_000, n_chars)[0]

    def gain(law):
        return np.median(excess(law, 10**6) - excess(law, 10**8))

    assert 0 < gain(result) < gain(fresh)

    np.testing.assert_allclose(excess(result, text), excess(fresh, text))  # one epoch

    # After many epochs, further ones change nothing: D' stays below U (1 + R).
    after_many = excess(result, 10**13)
    np.testing.assert_allclose(after_many, excess(result, 10**14), rtol=1e-6)

    low, high = np.quantile(result.draws[8], (0.05, 0.95))
    deviation_of_prior = priors(FLOOR)[1][8]

    assert low < np.log(REPEATS) < high
    # the runs tell more than the prior
    assert high - low < 0.9 * 2 * 1.645 * deviation_of_prior
