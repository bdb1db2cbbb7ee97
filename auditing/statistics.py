"""Tests of independence for a table of positions. The independent units are calls of the target,
never positions.

All tests of an audit together raise a false alarm in at most one of 1,000 audits of correct targets
(Bonferroni).
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

ALARMS_PER_AUDIT = 0.001
# at most; a test of several classes multiplies its p-value by their number
TESTS_PER_AUDIT = 149
LEVEL = ALARMS_PER_AUDIT / TESTS_PER_AUDIT
FEWEST_UNITS = 20  # below, a test by units says nothing
FEWEST = 60.0  # the variance of a class's count, below which it is not normal enough to be tested


@dataclass(frozen=True)
class Share:
    """The share sum(parts) / sum(totals) of counts by independent unit, `[n_units]`.

    Its error is that of the ratio estimator of cluster sampling (Cochran 1977, 6.4): it is right
    however positions of a unit depend on each other.
    """

    parts: Array
    totals: Array

    @property
    def value(self) -> float:
        return (
            float(self.parts.sum() / self.totals.sum())
            if self.totals.any()
            else math.nan
        )

    def z(self, expected: float) -> float:
        """How many standard errors the share is above `expected`."""
        return float(z_of_sums(self.parts - expected * self.totals))

    def differs(self, expected: float, effect: float = 0.0) -> bool:
        """Whether the share differs from `expected` by more than chance (Student's t-test) and by
        more than `effect`."""
        n_units = len(self.parts)
        if n_units < FEWEST_UNITS or not abs(self.value - expected) > effect:
            return False
        return two_sided_p(self.z(expected), n_units - 1) < LEVEL


def two_sided_p(t: float, degrees_of_freedom: int) -> float:
    """P(|T| > |t|) of Student's t-distribution: the integral of cos(angle) ** (df - 1) beyond
    atan(t / sqrt(df))."""
    root = math.sqrt(degrees_of_freedom)
    end = min(math.pi / 2, 40 / root)  # beyond, it is 0
    begin = min(end, math.atan(abs(t) / root))

    def mean_from(start: float) -> float:
        return np.trapezoid(
            np.cos(np.linspace(start, end, 2001)) ** (degrees_of_freedom - 1)
        )

    return float(mean_from(begin) * (1 - begin / end) / mean_from(0))


@dataclass(frozen=True)
class Dependence:
    """The shares of an outcome by the classes of a circumstance, and how sure it is that they
    differ from the mean."""

    shares: Array  # [n_classes]; nan where there is too little to test
    mean: float  # expected in every class
    z: Array  # [n_classes]; 0 where it is not tested
    n_units: int
    # the classes in which the outcome does not happen at all
    never: tuple[int, ...] = ()
    raw: Any = 0.0  # z by the observed spread alone, if z is not; it ranks dependences

    @property
    def n_tested(self) -> int:
        """The number of classes that are tested; 0 if there are too few units."""
        return (
            int(np.isfinite(self.shares).sum()) if self.n_units >= FEWEST_UNITS else 0
        )

    @property
    def p(self) -> float:
        """The p-value of the largest |z|, times the number of classes tested."""
        if not self.n_tested:
            return 1.0
        return min(
            1.0,
            self.n_tested * two_sided_p(float(np.abs(self.z).max()), self.n_units - 1),
        )

    def exceeds(self, effect: float) -> bool:
        """Whether shares differ by more than chance, and a class that does by more than `effect`.

        A class is one of these if its |z| is more than half of the largest.
        """
        magnitude = np.abs(self.z)
        sure = magnitude > 0.5 * magnitude.max()
        return (
            bool((np.abs(self.shares - self.mean)[sure] > effect).any())
            and self.p < LEVEL
        )


def z_of_sums(scores: Array, least: Any = 0.0) -> Array:
    """Sums over independent units, `[n_units, ...]`, in standard errors, whose squares are at least
    `least`."""
    n_units = len(scores)
    sums = scores.sum(0)
    variance = scores.var(0) * n_units * n_units / max(1, n_units - 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        z = sums / np.sqrt(np.maximum(least, variance))
    return np.where(np.abs(sums) < 1e-6, 0.0, z)


def of_means(
    scores: Array,
    totals: Array,
    mean: float = 0.0,
    tested: Any = True,
    least: Any = 0.0,
) -> Dependence:
    """Test that scores `[n_units, n_classes]` are 0 on average; the shares are `mean` plus scores
    per total."""
    sums = np.broadcast_to(totals, scores.shape).sum(0)
    tested = tested & (sums > 0)
    shares = mean + scores.sum(0) / np.where(tested, sums, 1)
    z = z_of_sums(scores, least)
    return Dependence(
        np.where(tested, shares, np.nan), mean, np.where(tested, z, 0.0), len(scores)
    )


def by_class(
    units: Array, classes: Array, outcomes: Array, expected: Array, n_units: int
) -> Dependence:
    """Test whether an outcome is independent of a circumstance, at flat arrays of positions `[n]`.

    `expected` is the outcome's share in the stratum of each position, such as its window. The
    scores of a class, outcome minus expected, are summed by unit; their spread over units gives the
    error of their sum. It is at least that of independent positions, because few events also have a
    small spread.
    """
    n_classes = int(classes.max(initial=0)) + 1
    totals = sums_by(units, classes, n_units, n_classes)
    scores = sums_by(units, classes, n_units, n_classes, outcomes - expected)
    mean = float(outcomes.mean()) if len(outcomes) else 0.0
    is_normal = totals.sum(0) * mean * (1 - mean) >= FEWEST
    tested = is_normal & ((totals > 0).sum(0) >= FEWEST_UNITS)
    never = np.flatnonzero(tested & (np.bincount(classes, outcomes, n_classes) == 0))
    binomial = np.bincount(classes, expected * (1 - expected), n_classes)
    dependence = of_means(scores, totals, mean, tested, binomial)
    raw = np.where(tested, z_of_sums(scores), 0.0)
    return replace(dependence, never=tuple(never.tolist()), raw=raw)


def sums_by(
    units: Array,
    classes: Array,
    n_units: int,
    n_classes: int,
    values: Array | None = None,
) -> Array:
    """Sums of values, or counts, by unit and class: `[n_units, n_classes]`."""
    cells = units * n_classes + classes
    return np.bincount(cells, values, n_units * n_classes).reshape(n_units, n_classes)


def of_units(parts: Array, totals: Array, classes: Array) -> Dependence:
    """Test whether a circumstance of whole units, `classes` `[n_units]`, changes their share."""
    mean = float(parts.sum() / max(1, totals.sum()))
    members = np.eye(classes.max(initial=0) + 1)[classes]
    scores = members * (parts - mean * totals)[:, None]
    is_enough = members.sum(0) >= FEWEST_UNITS / 2
    return of_means(scores, members * totals[:, None], mean, is_enough)
