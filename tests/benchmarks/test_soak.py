import pytest

from benchmarks.soak import grown


def test_a_leak_shows_and_what_is_given_back_does_not():
    """A training that takes 60 MiB now and then, for an hour, looked at every minute."""
    steady = [700.0 + 60 * (minute % 4 == 0) for minute in range(60)]
    assert grown(steady, per_minute=1)["growth"] == 0
    leaking = [mib + minute for minute, mib in enumerate(steady)]  # 1 MiB a minute
    assert grown(leaking, per_minute=1)["growth"] > 0.05
    assert grown([1.0, 500.0, *steady], per_minute=1)["growth"] == pytest.approx(0)  # it warms up first
