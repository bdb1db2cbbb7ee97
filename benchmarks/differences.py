"""Variants against a base: paired by seed, or taking turns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

# Student's t for 95%, by degrees of freedom: with few seeds a standard error is itself known badly, and two of them
# mean little. From 10 on it is 2.2 and less.
T95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26}


@dataclass(frozen=True)
class Paired:
    """How a variant does against the base: the mean over seeds of the differences between runs of one seed.

    Standard errors are nan with a single seed.
    """

    mean: float  # of the variant itself, not of the difference
    mean_stderr: float  # over the seeds
    difference: float
    stderr: float  # of the difference
    n_seeds: int

    @property
    def margin(self) -> float:
        """Half of the difference's 95% interval (Student's t)."""
        return T95.get(self.n_seeds - 1, 2.2) * self.stderr

    @property
    def is_tie(self) -> bool:
        """Whether chance alone gives such a difference in more than 5% of the cases."""
        return self.difference == 0 or not abs(self.difference) >= self.margin

    @property
    def verdict(self) -> str:
        return "tie" if self.is_tie else "better" if self.difference < 0 else "worse"


def paired(rows: Sequence[Mapping[str, Any]], name: str, base: str) -> dict[str, Paired]:
    """Every variant's result `name` against that of `base`, over the seeds that both have."""
    by_variant: dict[str, dict[int, float]] = {}
    for row in rows:
        by_variant.setdefault(row["variant"], {})[row["seed"]] = row["results"][name]
    compared = {}
    for variant, values in by_variant.items():
        seeds = [seed for seed in values if seed in by_variant[base]]
        differences = np.array([values[seed] - by_variant[base][seed] for seed in seeds])
        own = np.array([values[seed] for seed in seeds])
        compared[variant] = Paired(
            float(own.mean()), _stderr(own), float(differences.mean()), _stderr(differences), len(seeds)
        )
    return compared


def rotated(names: Sequence[str], i: int) -> list[str]:
    """The order of turns in round `i`: everyone comes first in one round, and after everyone else in others."""
    i %= len(names)
    return [*names[i:], *names[:i]]


def _stderr(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else float("nan")
