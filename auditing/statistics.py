"""Tests of independence for a table of positions. Units that are independent are calls of the target, never positions.

All tests of an audit together raise a false alarm in at most one of 1,000 audits of correct targets (Bonferroni).
"""

import math
from dataclasses import dataclass

import numpy as np

ALARMS_PER_AUDIT = 0.001
TESTS_PER_AUDIT = 120  # at most; a test of several classes multiplies its p-value by their number
LEVEL = ALARMS_PER_AUDIT / TESTS_PER_AUDIT
FEWEST_UNITS = 20  # below, a test by units says nothing
FEWEST = 60.0  # the variance of a class's count, below which it is not normal enough to be tested


@dataclass(frozen=True)
class Share:
    """A share with its standard error from independent units."""

    value: float
    stderr: float
    n_units: int

    def z(self, expected: float) -> float:
        """How many standard errors the share is above `expected`: 0 if both are equal, else infinite without error."""
        difference = self.value - expected
        if abs(difference) < 1e-9:
            return 0.0
        return difference / self.stderr if self.stderr > 0 else math.copysign(math.inf, difference)

    def differs(self, expected: float) -> bool:
        """Whether the share differs from `expected` by more than chance (Student's t-test)."""
        return self.n_units >= FEWEST_UNITS and two_sided_p(self.z(expected), self.n_units - 1) < LEVEL


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


def two_sided_p(t: float, degrees_of_freedom: int) -> float:
    """P(|T| > |t|) of Student's t-distribution: the integral of cos(angle) ** (df - 1) beyond atan(t / sqrt(df))."""
    if math.isinf(t):
        return 0.0
    begin = math.atan(abs(t) / math.sqrt(degrees_of_freedom))
    whole = np.cos(np.linspace(0, math.pi / 2, 20_001)) ** (degrees_of_freedom - 1)
    tail = np.cos(np.linspace(begin, math.pi / 2, 20_001)) ** (degrees_of_freedom - 1)
    return float(np.trapezoid(tail) * (math.pi / 2 - begin) / (np.trapezoid(whole) * math.pi / 2))


@dataclass(frozen=True)
class Dependence:
    """The shares of an outcome by the classes of a circumstance, and how sure it is that they differ from the mean."""

    shares: np.ndarray  # [n_classes]; nan where there is too little to test
    mean: float  # expected in every class
    z: np.ndarray  # [n_classes]; 0 where it is not tested
    n_units: int
    never: np.ndarray  # the classes in which the outcome does not happen at all

    @property
    def p(self) -> float:
        """The p-value of the largest |z|, times the number of classes tested."""
        n_tested = int(np.isfinite(self.shares).sum())
        if self.n_units < FEWEST_UNITS or not n_tested:
            return 1.0
        return min(1.0, n_tested * two_sided_p(float(np.abs(self.z).max()), self.n_units - 1))

    def exceeds(self, effect: float) -> bool:
        """Whether shares differ by more than chance, and a class that does by more than `effect`."""
        sure = np.abs(self.z) > 0.5 * np.abs(self.z).max()
        return self.p < LEVEL and bool((np.abs(self.shares - self.mean)[sure] > effect).any())


def by_class(
    units: np.ndarray, classes: np.ndarray, outcomes: np.ndarray, expected: np.ndarray, n_units: int
) -> Dependence:
    """Test whether an outcome is independent of a circumstance, at flat arrays of positions `[n]`.

    `expected` is the outcome's share in the stratum of each position, such as its window. The scores of a class,
    outcome minus expected, are summed by unit; their spread over units gives the error of their sum.
    """
    n_classes = int(classes.max(initial=0)) + 1
    cells, shape = units * n_classes + classes, (n_units, n_classes)
    totals = np.bincount(cells, minlength=n_units * n_classes).reshape(shape)
    scores = np.bincount(cells, outcomes - expected, n_units * n_classes).reshape(shape)
    mean, count = float(outcomes.mean()) if len(outcomes) else 0.0, totals.sum(0)
    tested = (count * mean * (1 - mean) >= FEWEST) & ((totals > 0).sum(0) >= FEWEST_UNITS)
    never = np.flatnonzero(tested & (np.bincount(classes, outcomes, n_classes) == 0))
    shares = np.where(tested, mean + scores.sum(0) / np.maximum(1, count), np.nan)
    return Dependence(shares, mean, np.where(tested, z_of_sums(scores), 0.0), n_units, never)


def z_of_sums(scores: np.ndarray) -> np.ndarray:
    """Standardized sums over independent units, `[n_units, ...]`, that are 0 on average if nothing depends."""
    n_units, sums = len(scores), scores.sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        z = sums / np.sqrt(scores.var(0) * n_units * n_units / max(1, n_units - 1))
    return np.where(np.abs(sums) < 1e-6, 0.0, z)


def of_means(scores: np.ndarray, totals: np.ndarray, mean: float = 0.0) -> Dependence:
    """Test that scores `[n_units, n_classes]` are 0 on average; the shares are `mean` plus scores per total."""
    sums = np.broadcast_to(totals, scores.shape).sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = np.where(sums > 0, mean + scores.sum(0) / sums, np.nan)
    return Dependence(shares, mean, np.where(sums > 0, z_of_sums(scores), 0.0), len(scores), np.zeros(0, dtype=int))


def of_units(parts: np.ndarray, totals: np.ndarray, classes: np.ndarray) -> Dependence:
    """Test whether a circumstance of whole units, `classes` `[n_units]`, changes their share. The spread of all units
    gives the error, as if the units were permuted."""
    mean, n_units = float(parts.sum() / max(1, totals.sum())), len(parts)
    residuals = parts - mean * totals
    counts, sums = np.bincount(classes), np.bincount(classes, residuals)
    spread = residuals.std() * np.sqrt(counts * (1 - counts / n_units) * n_units / max(1, n_units - 1))
    tested = (counts >= FEWEST_UNITS / 2) & (counts < n_units)
    with np.errstate(invalid="ignore", divide="ignore"):
        z, shares = sums / spread, mean + sums / np.bincount(classes, totals)
    return Dependence(np.where(tested, shares, np.nan), mean, np.where(tested, np.nan_to_num(z), 0.0), n_units,
                      np.zeros(0, dtype=int))  # fmt: skip
