"""Several runs side by side: which settings differ, and how sure the difference in loss is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

NOT_SETTINGS = {"seed", "name", "logs", "device"}  # runs that differ in these alone are repeats of each other
TIE = 2.0  # standard errors


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
    source: str  # what the standard error is over

    @property
    def verdict(self) -> str:
        """In words, with the number of standard errors."""
        if self.stderr == 0:
            return "the same" if self.mean == 0 else "different"
        size = abs(self.mean) / self.stderr
        if size < TIE:
            return f"a tie ({size:.1f} standard errors)"
        return f"{'better' if self.mean < 0 else 'worse'} ({size:.1f} standard errors)"


def group_by_settings(configs: Sequence[Mapping[str, Any]], window_losses: Sequence[np.ndarray]) -> list[Group]:
    """Group runs that differ in their seed alone, in the order of each group's first run."""
    members: dict[str, list[int]] = {}
    for i, config in enumerate(configs):
        members.setdefault(repr(sorted(_settings(config).items())), []).append(i)
    groups = []
    for indices in members.values():
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

    With two seeds or more on both sides the standard error is over seeds (Welch), which is what a repeat of the
    experiment would show. With fewer it is over the validation windows, paired: it says how well these very
    weights were measured, and nothing of how other seeds would do.
    """
    mean = group.mean - base.mean
    if group.stderr is not None and base.stderr is not None:
        return Difference(mean, (group.stderr**2 + base.stderr**2) ** 0.5, "seeds")
    paired = group.window_losses - base.window_losses
    stderr = paired.std(ddof=1) / len(paired) ** 0.5 if len(paired) > 1 else float("nan")
    return Difference(mean, float(stderr), "windows")


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in NOT_SETTINGS}
