"""A scaling law: the loss that a model reaches by its size and by the characters that it is trained on.

    loss(N, D) = floor + A N^-a + B D'^-b        (Hoffmann et al. 2022)

N are the weights outside of tables, D the characters of training. A text of U characters is repeated after U of them,
and repetitions are worth less: D' = U + U R (1 - exp(-(D / U - 1) / R)) (Muennighoff et al. 2023). The excess, the loss
above the floor, varies by a factor from run to run.

Few short runs hardly determine so many parameters. `fit` therefore draws from all laws that suit the runs, by an
ensemble sampler (Goodman and Weare 2010) with priors on the parameters, and an interval is one of these draws.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from runs.errors import InputError

MIN_RUNS = 6  # of at least two sizes and three lengths
WALKERS, STEPS = 64, 1_500
INTERVAL = (0.1, 0.5, 0.9)
# The parameters, with the means and deviations of their normal priors. The floor is a share of the lowest loss.
PRIORS = {
    "log A": (-0.7, 1.5),  # per unit of `Law.scale`, for runs of mean size and length
    "a": (0.5, 0.25),
    "log B": (-0.7, 1.5),
    "b": (0.5, 0.25),
    "log noise": (math.log(0.04), 0.6),
    "log repeats": (math.log(16), 0.7),
    "logit of the floor": (0.0, 1.6),  # nearly uniform
}
MEANS, DEVIATIONS = np.array(list(PRIORS.values())).T[:, :, None]


class Run(NamedTuple):
    """A finished run, with its complete schedule of learning rates."""

    n_weights: int  # outside of tables
    n_chars: int
    loss: float


class Prediction(NamedTuple):
    """The median, and an interval of 80% that includes the noise of a run."""

    low: float
    loss: float
    high: float


@dataclass(frozen=True)
class Law:
    """All laws that suit some runs."""

    runs: np.ndarray  # [3, n_runs]: sizes, characters, losses
    n_text: float  # characters of the text; infinite if none is repeated
    floor: float | None  # None if it is unknown
    draws: np.ndarray  # [7, n_draws], of the parameters in PRIORS

    @property
    def floors(self) -> np.ndarray:
        share = 1 / (1 + np.exp(-self.draws[6]))
        return self.runs[2].min() * share if self.floor is None else np.full_like(share, self.floor)

    @property
    def scale(self) -> float:
        return float(np.ptp(self.runs[2]) + 0.1 * self.runs[2].min())

    def excess(self, n_weights: np.ndarray | float, n_chars: np.ndarray | float) -> np.ndarray:
        """The expected loss above the floor by all draws, `[n_draws, n_points]`."""
        log_a, a, log_b, b, _, log_repeats, _ = self.draws[:, :, None]
        sizes, lengths = np.log(self.runs[:2]).mean(1)
        size, chars = np.log(n_weights) - sizes, np.log(effective_chars(n_chars, self.n_text, log_repeats)) - lengths
        return self.scale * (np.exp(log_a - a * size) + np.exp(log_b - b * chars))

    def log_density(self) -> np.ndarray:
        """The density of each draw, `[n_draws]`, by the runs and the priors."""
        excess = np.log(np.maximum(self.runs[2] - self.floors[:, None], 1e-9))
        log_noise = self.draws[4][:, None]
        errors = (excess - np.log(self.excess(*self.runs[:2]))) / np.exp(log_noise)
        prior = ((self.draws - MEANS) / DEVIATIONS) ** 2
        density = -(errors**2 / 2 + log_noise + excess).sum(1) - prior.sum(0) / 2
        return np.where((self.draws[[1, 3]] > 0).all(0), density, -np.inf)

    def predict(self, n_weights: float, n_chars: float) -> Prediction:
        """The loss of a run that has not been made."""
        noise = np.exp(self.draws[4]) * np.random.default_rng(0).standard_normal(self.draws.shape[1])
        losses = self.floors + self.excess(n_weights, n_chars)[:, 0] * np.exp(noise)
        return Prediction(*np.quantile(losses, INTERVAL).tolist())

    def parameters(self) -> dict[str, Prediction]:
        """The exponents and the floor, with intervals of 80%."""
        found = {"exponent of size": self.draws[1], "exponent of data": self.draws[3], "floor": self.floors}
        return {name: Prediction(*np.quantile(draws, INTERVAL).tolist()) for name, draws in found.items()}


def effective_chars(n_chars: np.ndarray | float, n_text: float, log_repeats: np.ndarray) -> np.ndarray:
    """The characters of fresh text that are worth as much as `n_chars` of a text of `n_text` characters."""
    if math.isinf(n_text):
        return np.asarray(n_chars, dtype=float)
    again, repeats = np.maximum(np.asarray(n_chars) / n_text - 1, 0), np.exp(log_repeats)
    return np.minimum(n_chars, n_text) - n_text * repeats * np.expm1(-again / repeats)


def fit(
    runs: Sequence[Run], *, n_text: float = math.inf, floor: float | None = None, steps: int = STEPS, seed: int = 0
) -> Law:
    """Fit the law to runs on a text of `n_text` characters. Raises InputError if there are too few.

    The ensemble sampler moves each half of its walkers along lines through random walkers of the other half.
    """
    n_sizes, n_lengths = (len({run[i] for run in runs}) for i in (0, 1))
    if len(runs) < MIN_RUNS or n_sizes < 2 or n_lengths < 3:
        found = f"{len(runs)} of {n_sizes} sizes and {n_lengths} lengths"
        raise InputError(f"not enough runs to extrapolate from: {found}; at least {MIN_RUNS} of 2 and 3 are needed")
    random = np.random.default_rng(seed)
    law = Law(np.array(runs, dtype=float).T, n_text, floor, MEANS + DEVIATIONS * random.normal(0, 0.3, (7, WALKERS)))
    halves = [replace(law, draws=law.draws[:, i::2]) for i in (0, 1)]
    densities, kept = [half.log_density() for half in halves], []
    for step in range(steps):
        for i in (0, 1):
            now, n = halves[i].draws, WALKERS // 2
            stretch = (1 + random.random(n)) ** 2 / 2  # its density falls with the root, from 1/2 to 2
            partners = halves[1 - i].draws[:, random.integers(n, size=n)]
            moved = replace(law, draws=partners + stretch * (now - partners))
            density = moved.log_density()
            is_taken = np.log(random.random(n)) < (len(PRIORS) - 1) * np.log(stretch) + density - densities[i]
            halves[i] = replace(law, draws=np.where(is_taken, moved.draws, now))
            densities[i] = np.where(is_taken, density, densities[i])
        if step >= steps // 2 and step % 10 == 0:  # the first half finds the region of the laws that suit
            kept += [half.draws for half in halves]
    return replace(law, draws=np.concatenate(kept, axis=1))
