"""Exact tests for the checks. Units that are independent are calls of the target, or windows, never positions.

All tests of an audit together raise a false alarm in at most one of 1,000 audits of correct targets (Bonferroni).
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

ALARMS_PER_AUDIT = 0.001
TESTS_PER_AUDIT = 20  # at most; a test of many hypotheses, such as all columns, multiplies its p-value by their number
LEVEL = ALARMS_PER_AUDIT / TESTS_PER_AUDIT
FEWEST_UNITS = 20  # below, a test by units says nothing


@dataclass(frozen=True)
class Share:
    """A share with its standard error, from counts in independent units."""

    value: float
    stderr: float
    n_units: int

    def z(self, expected: float) -> float:
        """How many standard errors the share is above `expected`: 0 if both are equal, else infinite without error."""
        difference = self.value - expected
        if abs(difference) < 1e-9:
            return 0.0
        return difference / self.stderr if self.stderr > 0 else math.copysign(math.inf, difference)

    def p(self, expected: float) -> float:
        """Two-sided p-value of Student's t-test with the units as degrees of freedom."""
        return two_sided_p(self.z(expected), self.n_units - 1)

    def differs(self, expected: float) -> bool:
        """Whether the share differs from `expected` by more than chance."""
        return self.n_units >= FEWEST_UNITS and self.p(expected) < LEVEL


def share_of(parts: np.ndarray, totals: np.ndarray) -> Share:
    """The share sum(parts) / sum(totals), with a standard error from the spread over units; both `[n_units]`.

    This is the ratio estimator of cluster sampling (Cochran 1977, 6.4): right however positions depend on each other
    within a unit.
    """
    total, n_units = float(totals.sum()), len(totals)
    if total == 0 or n_units < 2:
        return Share(math.nan if total == 0 else float(parts.sum() / total), math.inf, n_units)
    value = float(parts.sum() / total)
    residuals = parts - value * totals
    return Share(value, float(np.sqrt((residuals**2).sum() * n_units / (n_units - 1)) / total), n_units)


def mean_of(values: np.ndarray) -> Share:
    """The mean of independent values `[n_units]` with its standard error."""
    return share_of(np.asarray(values, dtype=float), np.ones(len(values)))


def two_sided_p(t: float, degrees_of_freedom: int) -> float:
    """P(|T| > |t|) of Student's t-distribution: the integral of cos(angle) ** (df - 1) beyond atan(t / sqrt(df))."""
    if math.isinf(t):
        return 0.0
    begin = math.atan(abs(t) / math.sqrt(degrees_of_freedom))
    whole = np.cos(np.linspace(0, math.pi / 2, 20_001)) ** (degrees_of_freedom - 1)
    tail = np.cos(np.linspace(begin, math.pi / 2, 20_001)) ** (degrees_of_freedom - 1)
    return float(np.trapezoid(tail) * (math.pi / 2 - begin) / (np.trapezoid(whole) * math.pi / 2))


def chi_square_p(counts: np.ndarray, expected: np.ndarray) -> float:
    """P-value of Pearson's test that `counts` follow `expected`, both `[n_bins]` with the same sum."""
    statistic = float(((counts - expected) ** 2 / expected).sum())
    freedom = torch.tensor((len(counts) - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom, torch.tensor(statistic / 2, dtype=torch.float64)))
