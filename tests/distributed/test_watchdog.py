"""The watchdog's rounds, counted by hand: no test here depends on a clock."""

from itertools import count

import pytest

from distributed.watchdog import (
    ROUNDS_OF_FIRST_STEP,
    ROUNDS_WITHOUT_SIGN,
    ROUNDS_WITHOUT_SIGN_IF_BUSY,
    ROUNDS_WITHOUT_STEP,
    Rounds,
)


class Run:
    """The view of the first of two processes, which makes a step per round unless told otherwise."""

    def __init__(self):
        self.rounds, self.numbers, self.n_steps = Rounds(0, 2), count(), 0

    def round(self, other: str | None = None, own: str | None = None, steps: int = 1, busy: bool = False) -> str | None:
        number = next(self.numbers)
        self.n_steps += steps
        signs = [f"{number}" if own is None else own, f"{number}" if other is None else other]
        return self.rounds.fault(signs, self.n_steps, busy)

    def rounds_until_fault(self, **each: object) -> tuple[int, str]:
        """The number of rounds until a fault is reported, and the report."""
        for n in range(1, 10_000):
            if reason := self.round(**each):
                return n, reason
        return 0, "none"


@pytest.fixture
def run() -> Run:
    run = Run()
    for _ in range(5):
        assert run.round() is None
    return run


def test_a_process_without_signs_is_lost(run):
    assert run.round(other="sign") is None
    assert run.rounds_until_fault(other="sign") == (ROUNDS_WITHOUT_SIGN + 1, "process 1 of 2 does not answer")


def test_a_process_that_was_busy_has_more_time(run):
    assert run.round(other="sign busy") is None
    n, reason = run.rounds_until_fault(other="sign busy", steps=0)
    assert (n, reason) == (ROUNDS_WITHOUT_SIGN_IF_BUSY + 1, "process 1 of 2 does not answer")


def test_a_process_that_never_starts_is_lost():
    n, reason = Run().rounds_until_fault(other="", steps=0)
    assert (n, reason) == (ROUNDS_OF_FIRST_STEP + 1, "process 1 of 2 has not started")


def test_a_process_that_has_ended_is_not_lost(run):
    assert run.rounds_until_fault(other="ended") == (0, "none")


def test_a_store_that_does_not_answer_is_noticed(run):
    assert run.round(own="own", other="sign") is None
    n, reason = run.rounds_until_fault(own="own", other="sign")
    assert (n, reason) == (ROUNDS_WITHOUT_SIGN + 1, "torchrun does not answer")


def test_a_run_without_steps_hangs(run):
    n, reason = run.rounds_until_fault(steps=0)
    assert n == ROUNDS_WITHOUT_STEP + 1
    assert reason.endswith("a process hangs")


def test_slow_steps_have_more_time(run):
    for _ in range(5):
        assert run.round(steps=0) is None
    assert run.round() is None
    assert run.rounds_until_fault(steps=0)[0] == 10 * 5 + 1


def test_the_time_for_slow_steps_is_limited(run):
    for _ in range(20):
        run.round(steps=0)
    run.round()
    for _ in range(190):
        assert run.round(steps=0) is None
    run.round()
    assert run.rounds_until_fault(steps=0)[0] == ROUNDS_OF_FIRST_STEP + 1


@pytest.mark.parametrize("where", ["here", "there"])
def test_waiting_for_a_busy_process_is_no_hang_and_no_slow_step(run, where):
    for i in range(ROUNDS_OF_FIRST_STEP + 1):
        sign = f"{i} busy" if where == "there" else None
        assert run.round(other=sign, steps=0, busy=where == "here") is None
    assert run.round() is None
    assert run.rounds_until_fault(steps=0)[0] == ROUNDS_WITHOUT_STEP + 1
