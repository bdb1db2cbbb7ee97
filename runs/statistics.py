"""Differences in loss between groups of runs. A tie: the 95% interval by Student's t-distribution
contains zero."""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Group:
    """Runs with the same settings and different seeds."""

    settings: Mapping[str, Any]  # the config without the ignored keys
    losses: np.ndarray  # [n_seeds], the mean loss of each run
    # [n_windows], averaged over the runs, nats per masked character
    window_losses: np.ndarray


@dataclass(frozen=True)
class Difference:
    """The loss of one side minus that of the other, in nats. A negative difference is better."""

    mean: float
    stderr: float | None  # None for a single repetition
    degrees_of_freedom: float

    @property
    def margin(self) -> float | None:
        """Half the width of the 95% interval; None if the spread is unknown or zero."""
        if not self.stderr:
            return None
        return t_quantile(CONFIDENCE, self.degrees_of_freedom) * self.stderr

    @property
    def p_value(self) -> float | None:
        """Two-sided p-value of Student's t-test; None if the spread is unknown or zero."""
        if not self.stderr:
            return None
        return two_sided_p(abs(self.mean) / self.stderr, self.degrees_of_freedom)

    @property
    def verdict(self) -> str:
        """`better`, `worse`, `tie`, or `unknown`."""
        if self.margin is None:
            return "unknown"
        if abs(self.mean) <= self.margin:
            return "tie"
        return "better" if self.mean < 0 else "worse"


def standard_error(values: Sequence[float] | np.ndarray) -> float | None:
    """Standard error of the mean; None for a single value."""
    if len(values) < 2:
        return None
    return float(np.std(values, ddof=1)) / len(values) ** 0.5


def with_error(value: str, error: float | None) -> str:
    """A number with its standard error, or half of its interval, in as many digits; alone if that
    is unknown."""
    if error is None or math.isnan(error):
        return value
    n_digits = len(value.partition(".")[2])
    return f"{value} ± {error:.{n_digits}f}"


def share_interval(n_right: int, n: int) -> tuple[float, float]:
    """The 95% interval of a share of n (Wilson 1927)."""
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    share = n_right / n
    center = share + z**2 / (2 * n)
    margin = z * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    whole = 1 + z**2 / n
    return (center - margin) / whole, (center + margin) / whole


def paired_difference(values: ArrayLike, base: ArrayLike) -> Difference:
    """Mean of `values` minus `base`, paired element by element: the same seed, or the same window."""
    differences = np.subtract(values, base)
    return Difference(
        float(differences.mean()), standard_error(differences), len(differences) - 1
    )


def seed_difference(group: Group, base: Group) -> Difference | None:
    """Difference between two groups over seeds, unpaired (Welch 1947); None with fewer than two
    seeds in either."""
    if min(len(group.losses), len(base.losses)) < 2:
        return None
    variances = [each.losses.var(ddof=1) / len(each.losses) for each in (group, base)]
    freedom = freedom_of_sum(
        variances, [len(each.losses) - 1 for each in (group, base)]
    )
    mean = float(group.losses.mean() - base.losses.mean())
    return Difference(mean, sum(variances) ** 0.5, freedom)


def freedom_of_sum(variances: Sequence[float], freedoms: Sequence[float]) -> float:
    """The degrees of freedom of a sum of variances, each with its own (Satterthwaite 1946)."""
    parts = np.square(variances) / np.asarray(freedoms)
    return float(sum(variances) ** 2 / parts.sum()) if any(variances) else 1.0


def margin_of_sum(variances: Sequence[float], freedoms: Sequence[float]) -> float:
    """Half the width of the 95% interval of a mean whose variance is the sum of `variances`."""
    t = t_quantile(CONFIDENCE, freedom_of_sum(variances, freedoms))
    return t * float(sum(variances) ** 0.5)


def group_by_settings(
    configs: Sequence[Mapping[str, Any]],
    window_losses: Sequence[np.ndarray],
    ignored: Collection[str],
) -> list[Group]:
    """Group runs that differ only in `ignored` keys, such as the seed, in the order of each group's
    first run. A second run with the same settings and seed is left out."""
    settings = {}
    losses_by_seed = {}

    for config, losses in zip(configs, window_losses, strict=True):
        shared = {key: value for key, value in config.items() if key not in ignored}
        name = json.dumps(shared, sort_keys=True)
        settings.setdefault(name, shared)
        losses_by_seed.setdefault(name, {}).setdefault(config["seed"], losses)

    groups = []
    for name, by_seed in losses_by_seed.items():
        losses = np.stack(list(by_seed.values()))  # [n_seeds, n_windows]
        groups.append(Group(settings[name], losses.mean(axis=1), losses.mean(axis=0)))

    return groups


def differing_keys(groups: Sequence[Group]) -> dict[str, list[Any]]:
    """The settings in which the groups differ, each with its value in every group."""
    differing = {}
    for key in groups[0].settings:
        values = [group.settings[key] for group in groups]
        if any(value != values[0] for value in values):
            differing[key] = values
    return differing


def two_sided_p(t: float, degrees_of_freedom: float) -> float:
    """P(|T| > t) of Student's t-distribution."""
    angles, cumulative = _t_distribution(degrees_of_freedom)
    angle = math.atan(t / degrees_of_freedom**0.5)
    return float(1 - np.interp(angle, angles, cumulative))


def t_quantile(probability: float, degrees_of_freedom: float) -> float:
    """The t with P(|T| <= t) = `probability`."""
    angles, cumulative = _t_distribution(degrees_of_freedom)
    return (
        math.tan(np.interp(probability, cumulative, angles)) * degrees_of_freedom**0.5
    )


@lru_cache(maxsize=16)  # 80 kB each
def _t_distribution(degrees_of_freedom: float) -> tuple[np.ndarray, np.ndarray]:
    """P(|T| <= sqrt(df) * tan(angle)) at angles from 0 to pi/2: the integral of
    cos(angle) ** (df - 1)."""
    largest = min(math.pi / 2, 40 / degrees_of_freedom**0.5)  # beyond, the density is 0
    angles = np.linspace(0.0, largest, 5_001)
    density = np.abs(np.cos(angles)) ** (degrees_of_freedom - 1)
    cumulative = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return angles, cumulative / cumulative[-1]
