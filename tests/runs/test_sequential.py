import numpy as np
import pytest

from runs.sequential import (
    FIRST_LOOK,
    Interval,
    critical_values,
    expected_pairs,
    interval,
)

N_TRIALS = 2_000
MOST = 20
SMALLEST = 0.01
CRITICAL = critical_values(MOST)


def trials(difference, spread, seed=1):
    """Simulated trials with a known difference: the last interval and the answer of each."""
    rng = np.random.default_rng(seed)
    for differences in rng.normal(difference, spread, (N_TRIALS, MOST)):
        yield trial(differences)


def trial(differences):
    for n_pairs in range(FIRST_LOOK, MOST + 1):
        known = interval(differences[:n_pairs], CRITICAL)
        answer = known.answer(SMALLEST)
        if answer:
            break
    return known, answer


# of 2,000 trials with a share of 0.05, 0.95 have at most 0.058
@pytest.mark.parametrize("spread", [0.003, 0.009, 0.03])
def test_without_a_difference_one_trial_in_twenty_calls_one(spread):
    answers = [answer for _, answer in trials(0.0, spread)]
    called = [answer for answer in answers if answer in ("better", "worse")]
    assert len(called) <= 0.058 * N_TRIALS


@pytest.mark.parametrize("difference", [-0.02, -0.01, 0.005])
def test_intervals_at_the_end_of_a_trial_cover_the_difference(difference):
    ends = [known for known, _ in trials(difference, 0.009)]
    covered = [end for end in ends if end.low <= difference <= end.high]
    assert len(covered) >= 0.942 * N_TRIALS


def test_a_difference_of_two_spreads_is_found_in_few_pairs():
    results = list(trials(-0.02, 0.009))
    found = [known.n_pairs for known, answer in results if answer == "better"]
    assert len(found) >= 0.99 * N_TRIALS
    assert np.mean(found) < 5.5


def test_a_difference_as_large_as_the_smallest_is_rarely_denied():
    answers = [answer for _, answer in trials(SMALLEST, 0.006)]
    assert answers.count("no difference") <= 0.05 * N_TRIALS


def test_critical_values_of_a_trial_do_not_depend_on_its_end():
    assert np.array_equal(critical_values(10), CRITICAL[:11])


def test_several_variants_have_wider_intervals():
    differences = [-0.02, -0.03, -0.025, -0.021]
    alone = interval(differences, CRITICAL)
    of_five = interval(differences, critical_values(MOST, 0.01))
    assert of_five.low < alone.low < alone.high < of_five.high


@pytest.mark.parametrize(
    ("low", "high", "answer"),
    [
        (-0.03, -0.01, "better"),
        (-0.002, -0.001, "no difference"),
        (0.001, 0.02, "worse"),
        (-0.012, -0.001, "better"),
        (-0.009, 0.009, "no difference"),
        (0.0, 0.0, "no difference"),
        (-0.02, 0.005, None),
        (-np.inf, np.inf, None),
    ],
)
def test_an_answer_follows_from_the_interval(low, high, answer):
    assert Interval(3, (low + high) / 2, low, high).answer(SMALLEST) == answer


def test_an_answer_is_expected_when_the_margin_is_narrow_enough():
    differences = [-0.02, -0.024, -0.004]
    further = expected_pairs(differences, SMALLEST, CRITICAL)
    spread = np.std(differences, ddof=1)
    margins = CRITICAL[3:] * spread / np.arange(3, MOST + 1) ** 0.5
    mean = abs(np.mean(differences))
    assert margins[further] < mean < margins[further - 1]
    assert expected_pairs([0.01, -0.011, 0.003], 1e-3, CRITICAL) is None


@pytest.mark.filterwarnings("error")
def test_equal_differences_are_certain_at_the_first_look():
    assert expected_pairs([0.0, 0.0], SMALLEST, CRITICAL) == 1
    assert interval([0.0] * 3, CRITICAL).answer(SMALLEST) == "no difference"
    assert interval([0.02] * 3, CRITICAL).answer(SMALLEST) == "worse"
