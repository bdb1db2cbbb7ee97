import pytest

from benchmarks.soak import growth


def test_growth_shows_a_leak_but_not_memory_that_is_given_back():
    """A training that takes 60 MiB from time to time, sampled every minute for an hour."""
    steady = [700.0 + 60 * (minute % 4 == 0) for minute in range(60)]
    assert growth(steady, per_minute=1)["growth"] == 0

    leaking = [mib + minute for minute, mib in enumerate(steady)]  # 1 MiB per minute
    assert growth(leaking, per_minute=1)["growth"] > 0.05
    # the warm-up does not count
    assert growth([1.0, 500.0, *steady], per_minute=1)["growth"] == pytest.approx(0)
