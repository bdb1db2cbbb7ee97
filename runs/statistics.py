"""Several runs side by side: which settings differ, and how sure the difference in loss is."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

NOT_SETTINGS = {"seed", "name", "logs"}  # runs that differ in these alone are repeats of each other
SURE = 0.05  # a difference is called one where chance alone would give as large a one less often than this


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seed only."""

    config: Mapping[str, Any]
    losses: np.ndarray  # [n_runs], the mean loss of each
    window_losses: np.ndarray  # [n_windows], averaged over the runs, nats a masked character

    @property
    def mean(self) -> float:
        return float(self.losses.mean())

    @property
    def stderr(self) -> float | None:
        """Of the mean over seeds; None for a single run."""
        return float(self.losses.std(ddof=1) / len(self.losses) ** 0.5) if len(self.losses) > 1 else None


@dataclass(frozen=True)
class Difference:
    """The loss of one group minus that of another, in nats."""

    mean: float
    stderr: float
    degrees_of_freedom: float
    source: str  # what the standard error is over

    @property
    def p_value(self) -> float:
        """How often chance alone would give as large a difference (two-sided t-test); nan where that is unknown."""
        if not self.stderr > 0:
            return float("nan")
        return two_sided_p(abs(self.mean) / self.stderr, self.degrees_of_freedom)

    @property
    def verdict(self) -> str:
        """In words."""
        p = self.p_value
        if math.isnan(p):
            return "too little to tell"
        if p > SURE:
            return f"a tie (p = {p:.2f})"
        return f"{'better' if self.mean < 0 else 'worse'} (p {'= ' if p >= 0.001 else '< '}{max(p, 0.001):.3f})"


def two_sided_p(t: float, degrees_of_freedom: float) -> float:
    """P(|T| > t) of Student's t-distribution, by the trapezoid rule over the angle atan(x / sqrt(df))."""
    angle = np.linspace(math.atan(t / degrees_of_freedom**0.5), math.pi / 2, 20_001)
    whole = np.linspace(0.0, math.pi / 2, 20_001)
    power = degrees_of_freedom - 1
    tail, total = (np.trapezoid(np.abs(np.cos(a)) ** power, a) for a in (angle, whole))
    return float(tail / total)


def group_by_settings(configs: Sequence[Mapping[str, Any]], window_losses: Sequence[np.ndarray]) -> list[Group]:
    """Group runs that differ in their seed alone, in the order of each group's first run."""
    members: dict[str, dict[int, int]] = {}  # settings -> seed -> run: a second run with the same seed tells nothing
    for i, config in enumerate(configs):
        members.setdefault(repr(sorted(_settings(config).items())), {}).setdefault(config["seed"], i)
    groups = []
    for runs in members.values():
        indices = list(runs.values())
        losses = np.stack([window_losses[i] for i in indices])
        groups.append(Group(configs[indices[0]], losses.mean(axis=1), losses.mean(axis=0)))
    return groups


def differing_keys(groups: Sequence[Group]) -> dict[str, list[Any]]:
    """The settings in which the groups differ, each with its value in every group."""
    keys = dict.fromkeys(key for group in groups for key in _settings(group.config))
    values = {key: [group.config.get(key) for group in groups] for key in keys}
    return {key: row for key, row in values.items() if any(value != row[0] for value in row)}


def compare(group: Group, base: Group) -> Difference:
    """How much higher the loss of `group` is than that of `base`.

    With two seeds or more on both sides the standard error is over seeds (Welch 1947), which is what a repeat of the
    experiment would show. With fewer it is over the validation windows, paired: it says how well these very
    weights were measured, and nothing of how other seeds would do.
    """
    mean = group.mean - base.mean
    if group.stderr is not None and base.stderr is not None:
        variances = [group.stderr**2, base.stderr**2]
        spread = sum(v**2 / (len(g.losses) - 1) for v, g in zip(variances, (group, base), strict=True))
        freedom = sum(variances) ** 2 / spread if spread else 1.0
        return Difference(mean, sum(variances) ** 0.5, freedom, "seeds")
    paired = group.window_losses - base.window_losses
    n = len(paired)
    stderr = float(paired.std(ddof=1) / n**0.5) if n > 1 else float("nan")
    return Difference(mean, stderr, max(1, n - 1), "windows")


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in NOT_SETTINGS}
