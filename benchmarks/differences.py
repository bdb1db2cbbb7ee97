"""Variants against a base, paired by seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Paired:
    """How a variant does against the base: the mean over seeds of the differences between runs of one seed.

    Standard errors are nan with a single seed.
    """

    mean: float  # of the variant itself, not of the difference
    mean_stderr: float  # over the seeds
    difference: float
    stderr: float  # of the difference

    @property
    def is_tie(self) -> bool:
        """A difference under two standard errors."""
        return self.difference == 0 or not abs(self.difference) >= 2 * self.stderr

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
        compared[variant] = Paired(float(own.mean()), _stderr(own), float(differences.mean()), _stderr(differences))
    return compared


def _stderr(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else float("nan")
