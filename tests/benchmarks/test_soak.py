import pytest

from benchmarks.soak import growth


def test_growth_shows_a_leak_but_not_memory_that_is_given_back():
    """A training that takes 60 MiB from time to time, sampled every minute for an hour."""

    def share(samples):
        return growth(samples, per_minute=1)["growth"]

    steady = [760.0, 700.0, 700.0, 700.0] * 15
    leaking = [mib + minute for minute, mib in enumerate(steady)]  # 1 MiB per minute
    warm_up = [1.0, 500.0]

    assert share(steady) == 0
    assert share(leaking) > 0.05
    assert share([*warm_up, *steady]) == pytest.approx(0)  # the warm-up does not count
