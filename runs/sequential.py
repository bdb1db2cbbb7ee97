"""Intervals of a mean difference that are valid after every pair, so a trial may stop at any time.

They are repeated confidence intervals (Jennison & Turnbull 1989): mean ± c * standard error, with a
critical value c for each number of pairs. An error spending function (Lan & DeMets 1983) divides
the error among the looks: until pair n, a share of 1 - 2 / n is spent. It does not depend on the
number of pairs at most, so a trial that ended without an answer may go on. The critical values are
those of Student's t with unknown spread: exact for normal differences, up to the simulation.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

ERROR = 0.05  # of all looks together
FIRST_LOOK = 3  # pairs
N_SIMULATED = 1_000_000


class Interval(NamedTuple):
    """The mean of differences, variant minus base, and its interval."""

    n_pairs: int
    mean: float
    low: float
    high: float

    def answer(self, smallest: float, more_is_better: bool = False) -> str | None:
        """`better`, `worse`, `no difference` as large as `smallest`, or None if it is still open."""
        if -smallest < self.low and self.high < smallest:
            return "no difference"
        if self.high < 0:
            return "worse" if more_is_better else "better"
        if self.low > 0:
            return "better" if more_is_better else "worse"
        return None


def critical_values(most: int, error: float = ERROR) -> np.ndarray:
    """The largest |t| of an open trial by the number of pairs `[most + 1]`; infinite before the
    first look.

    Trials without a difference are simulated: at each look, those with the largest |t| leave, as
    many as the error that the look may spend.
    """
    rng = np.random.default_rng(0)
    mean = np.zeros(N_SIMULATED)
    squares = np.zeros(N_SIMULATED)  # summed deviations from the mean
    critical = np.full(most + 1, np.inf)
    n_left = 0

    for n in range(1, most + 1):
        pair = rng.standard_normal(N_SIMULATED)
        change = pair - mean
        mean += change / n
        squares += change * (pair - mean)
        if n < FIRST_LOOK:
            continue
        t = np.abs(mean) / np.sqrt(squares / (n - 1) / n)
        n_leaving = round(error * spent(n) * N_SIMULATED) - n_left
        n_left += n_leaving
        # those that left before are NaN, which sorts last
        rank = len(t) - n_left
        critical[n] = np.partition(t, rank)[rank]
        leaves = t >= critical[n]
        mean[leaves] = np.nan

    return critical


def spent(n_pairs: int) -> float:
    """The share of the error that the looks until this pair may spend together."""
    return 1 - (FIRST_LOOK - 1) / n_pairs


def interval(differences: Sequence[float], critical: np.ndarray) -> Interval:
    """The interval after these differences; infinite before the first look."""
    n_pairs = len(differences)
    mean = float(np.mean(differences))
    if n_pairs < FIRST_LOOK:
        return Interval(n_pairs, mean, -np.inf, np.inf)
    stderr = float(np.std(differences, ddof=1)) / n_pairs**0.5
    margin = float(critical[n_pairs]) * stderr
    return Interval(n_pairs, mean, mean - margin, mean + margin)


def expected_pairs(
    differences: Sequence[float], smallest: float, critical: np.ndarray
) -> int | None:
    """The number of further pairs until an answer, if mean and spread stay as they are; None if the
    critical values end before."""
    mean = abs(float(np.mean(differences)))
    n_pairs = np.arange(FIRST_LOOK, len(critical))
    stderrs = float(np.std(differences, ddof=1)) / n_pairs**0.5
    has_answer = critical[FIRST_LOOK:] * stderrs < max(mean, smallest - mean)
    later = n_pairs[has_answer & (n_pairs > len(differences))]
    return int(later[0]) - len(differences) if len(later) else None
