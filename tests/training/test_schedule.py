from itertools import pairwise

import pytest

from training.schedule import Budget, learning_rate_at

SHAPE = {"warmup": 0.1, "decay": 0.4, "final": 0.05}


@pytest.mark.parametrize(
    ("progress", "share"),
    [(0.0, 0.01), (0.05, 0.5), (0.1, 1.0), (0.35, 1.0), (0.6, 1.0), (0.8, 0.525), (1.0, 0.05), (1.1, 0.05)],
)
def test_the_learning_rate_at_its_corners(progress: float, share: float):
    assert learning_rate_at(progress, **SHAPE) == pytest.approx(share)


def test_the_learning_rate_has_no_jumps():
    shares = [learning_rate_at(i / 10_000, **SHAPE) for i in range(10_001)]
    assert max(abs(a - b) for a, b in pairwise(shares)) < 0.011  # the first step's 0.01


def test_without_warmup_and_decay_it_is_constant():
    assert {learning_rate_at(i / 10, warmup=0, decay=0, final=0) for i in range(11)} == {1.0}


def test_progress_is_the_largest_share_of_any_limit():
    budget = Budget(max_steps=100, max_chars=1_000, max_seconds=10.0)
    assert budget.progress(step=50, chars=100, seconds=1.0) == 0.5
    assert budget.progress(step=1, chars=900, seconds=1.0) == 0.9
    assert budget.progress(step=1, chars=1, seconds=12.0) == 1.2


def test_limits_that_are_not_set_do_not_count():
    assert Budget(max_steps=10).progress(step=5, chars=10**12, seconds=10**9) == 0.5
