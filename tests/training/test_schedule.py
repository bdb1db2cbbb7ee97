from itertools import pairwise

import pytest

from training.schedule import Schedule, Stage, mean_masking_prob, stage_at

STAGES = [Stage(0.3, 32, 0.3), Stage(0.6, 64, 0.2), Stage(1.0, 256, 0.15)]


def schedule(warmup=0.1, decay=0.4, final=0.05, limits=(1, None, None)):
    return Schedule(*limits, STAGES, warmup, decay, final, 1, 60.0)


@pytest.mark.parametrize(
    ("progress", "number"),
    [(0.0, 0), (0.2999, 0), (0.3, 1), (0.5999, 1), (0.6, 2), (1.2, 2)],
)
def test_a_stage_applies_before_its_end_and_the_next_from_there(progress, number):
    assert stage_at(STAGES, progress) is STAGES[number]


def test_the_steps_of_a_row_cycle_through_its_masking_rates():
    stages = [
        Stage(0.5, 32, 0.1),
        Stage(0.5, 32, 0.5),
        Stage(0.5, 32, 0.9),
        Stage(1.0, 64, 0.2),
    ]
    taken = [stages.index(stage_at(stages, 0.4, step)) for step in range(5)]

    assert taken == [0, 1, 2, 0, 1]
    assert stage_at(stages, 0.5, 4) is stage_at(stages, 1.0, 4) is stages[3]
    assert mean_masking_prob(stages, stages[1]) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("progress", "share"),
    [
        (0.0, 0.01),
        (0.05, 0.5),
        (0.1, 1.0),
        (0.35, 1.0),
        (0.6, 1.0),
        (0.8, 0.525),
        (1.0, 0.05),
    ],
)
def test_the_learning_rate_rises_stays_and_falls(progress, share):
    assert schedule().learning_rate_at(progress) == pytest.approx(share)


def test_the_learning_rate_changes_in_small_steps_only():
    """Without warmup and decay it is constant."""
    shares = [schedule().learning_rate_at(i / 10_000) for i in range(10_001)]
    # the first step has 0.01 in place of 0
    assert max(abs(a - b) for a, b in pairwise(shares)) < 0.011
    assert {schedule(0, 0, 0).learning_rate_at(i / 10) for i in range(11)} == {1.0}


def test_progress_is_the_largest_share_of_all_limits_that_are_set():
    budget = schedule(limits=(100, 1_000, 10.0))
    assert budget.progress(step=50, chars=100, seconds=1.0) == 0.5
    assert budget.progress(step=1, chars=900, seconds=1.0) == 0.9
    assert budget.progress(step=1, chars=1, seconds=12.0) == 1.0
    assert (
        schedule(limits=(10, None, None)).progress(step=5, chars=10**12, seconds=10**9)
        == 0.5
    )
