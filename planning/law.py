"""A scaling law: the loss that a model reaches by its size and by the characters that it is trained
on.

    loss(N, D) = floor + A N^-a + S D'^-s + B D^-b N^-c

N is the number of weights outside n-gram tables, D the number of characters. The first three terms
are the law of Hoffmann et al. (2022). The last one is the beginning of training: it falls fast, and
faster in larger models. Repetitions of a text of U characters are worth less than new text: D' = U
+ U R (1 - exp(-(D / U - 1) / R)) for D > U (Muennighoff et al. 2023). Excesses, the losses above
the floor, vary by a random factor from run to run, and more in short runs. `fit` draws many laws
that suit the runs, with the priors of docs/scaling.md. The spread of their predictions is the
interval.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from runs.errors import InputError

MIN_RUNS = 6  # of at least two sizes and three lengths
WALKERS, STEPS = 192, 5_000
FRESH = 1e30  # characters of a text that is never repeated
# The parameters, with the means and deviations of their normal priors. A, S and B are excesses of a
# run of mean size and length, as shares of the spread of the losses. The floor is a share of the
# lowest loss.
PRIORS = {"log A": (-4.5, 1.0), "a": (0.4, 0.2), "log S": (-1.5, 1.5), "s": (0.3, 0.07)}
PRIORS |= {
    "log B": (-3.0, 1.0),
    "b": (1.6, 0.3),
    "c": (0.6, 0.2),
    "log noise": (math.log(0.02), 0.5),
}
PRIORS |= {"log R": (math.log(30), 1.0), "logit of the floor": (-3.0, 0.6)}
# of the play, the only text with a known floor
PLAY_PRIORS = PRIORS | {"s": (0.4, 0.4), "b": (1.2, 0.1)}
EXPONENTS = [list(PRIORS).index(name) for name in "asb"]
# of the last term, as a share of it: the beginning of training is not quite a power law
START_ERROR = 0.15


class Run(NamedTuple):
    """A finished run, with a complete schedule of its learning rate."""

    n_weights: int  # outside of tables
    n_chars: int
    loss: float


class Interval(NamedTuple):
    """The median of draws, and the ends of the middle 80%."""

    low: float
    loss: float
    high: float

    @classmethod
    def of(cls, draws: np.ndarray) -> "Interval":
        return cls(*np.quantile(draws, (0.1, 0.5, 0.9)).tolist())

    def words(self, digits: int) -> str:
        return f"{self.loss:.{digits}f} ({self.low:.{digits}f} to {self.high:.{digits}f})"


@dataclass(frozen=True)
class Law:
    """Laws drawn from their posterior given some runs; leading axes `...` stand for many sets of
    runs."""

    runs: np.ndarray  # [3, ..., n_runs]: sizes, characters, losses
    n_text: float  # characters of the text
    known_floor: float | None
    draws: np.ndarray  # [10, ..., n_draws], of the parameters in PRIORS

    @property
    def floors(self) -> np.ndarray:
        share = 1 / (1 + np.exp(-self.draws[-1]))
        lowest = self.runs[2].min(-1)[..., None]
        return lowest * share if self.known_floor is None else np.full_like(share, self.known_floor)

    def excess_and_deviation(
        self, n_weights: np.ndarray | float, n_chars: np.ndarray | float
    ) -> tuple[np.ndarray, np.ndarray]:
        """The expected loss above the floor by each law, and the deviation of its logarithm from
        run to run: each `[..., n_draws, n_points]`.
        """
        log_a, a, log_s, s, log_b, b, c, log_noise, log_repeats, _ = self.draws[..., None]
        repeats, again = np.exp(log_repeats), np.maximum(n_chars / np.float64(self.n_text) - 1, 0)
        worth = np.minimum(n_chars, self.n_text) - self.n_text * repeats * np.expm1(
            -again / repeats
        )
        sizes, lengths = np.log(self.runs[:2]).mean(-1)[..., None, None]
        size, length, fresh = (
            np.log(n_weights) - sizes,
            np.log(n_chars) - lengths,
            np.log(worth) - lengths,
        )
        start = np.exp(log_b - b * length - c * size)
        parts = np.exp(log_a - a * size) + np.exp(log_s - s * fresh) + start
        deviation = np.hypot(np.exp(log_noise), START_ERROR * start / parts)
        return np.ptp(self.runs[2], -1)[..., None, None] * parts, deviation

    def log_density(self) -> np.ndarray:
        """The density of each draw, `[..., n_draws]`, by the runs and the priors."""
        sizes, lengths, losses = self.runs[..., None, :]
        excess = np.log(np.maximum(losses - self.floors[..., None], 1e-9))
        expected, deviation = self.excess_and_deviation(sizes, lengths)
        errors = (excess - np.log(expected)) / deviation
        means, deviations = priors(self.known_floor)
        prior = ((self.draws.T - means) / deviations) ** 2
        density = -(errors**2 / 2 + np.log(deviation) + excess).sum(-1) - prior.sum(-1).T / 2
        return np.where((self.draws[EXPONENTS] > 0).all(0), density, -np.inf)

    def expected(self, n_weights: float, n_chars: float) -> float:
        """The mean loss over all laws, without the noise of a run."""
        return float((self.floors + self.excess_and_deviation(n_weights, n_chars)[0][:, 0]).mean())

    def predict(self, n_weights: float, n_chars: float) -> Interval:
        """The loss of a further run, with the noise of a run."""
        excess, deviation = (each[:, 0] for each in self.excess_and_deviation(n_weights, n_chars))
        return Interval.of(
            self.floors + excess * np.exp(np.random.default_rng(0).normal(0, deviation))
        )


def priors(known_floor: float | None) -> np.ndarray:
    """The means and the deviations of the parameters, `[2, 10]`."""
    return np.array(list((PRIORS if known_floor is None else PLAY_PRIORS).values())).T


def fit(runs: Sequence[Run], *, n_text: float = FRESH, floor: float | None = None) -> Law:
    """The laws that suit runs on a text of `n_text` characters. Raises InputError if there are too
    few runs."""
    n_sizes, n_lengths = (len({run[i] for run in runs}) for i in (0, 1))
    if len(runs) < MIN_RUNS or n_sizes < 2 or n_lengths < 3:
        raise InputError(
            f"not enough runs to extrapolate from: {MIN_RUNS} of 2 sizes and 3 lengths are needed"
        )
    return drawn(np.array(runs, dtype=float).T, n_text, floor)


def drawn(runs: np.ndarray, n_text: float, floor: float | None, steps: int = STEPS) -> Law:
    """Draw laws that suit `runs` `[3, ..., n_runs]`.

    Each half of an ensemble of laws moves along lines through random laws of the other half
    (Goodman and Weare 2010).
    """
    random, n, kept = np.random.default_rng(0), WALKERS // 2, []
    means, deviations = priors(floor)
    starts = (random.normal(0, 0.2, (len(PRIORS), *runs.shape[1:-1], n)).T for _ in range(2))
    halves = [Law(runs, n_text, floor, (means + deviations * start).T) for start in starts]
    densities = [half.log_density() for half in halves]
    for step, i in ((step, i) for step in range(steps) for i in (0, 1)):
        # from 1/2 to 2, with a density of 1 / sqrt(stretch)
        stretch = (1 + random.random(densities[i].shape)) ** 2 / 2
        partners = halves[1 - i].draws[..., random.integers(n, size=n)]
        moved = replace(halves[i], draws=partners + stretch * (halves[i].draws - partners))
        change = (
            (len(PRIORS) - 1) * np.log(stretch) + (density := moved.log_density()) - densities[i]
        )
        is_taken = np.log(random.random(density.shape)) < change
        halves[i] = replace(moved, draws=np.where(is_taken, moved.draws, halves[i].draws))
        densities[i] = np.where(is_taken, density, densities[i])
        # the first half finds the region of the laws that suit
        if step >= steps // 2 and step % 10 == 0:
            kept.append(halves[i].draws)
    return replace(halves[0], draws=np.concatenate(kept, axis=-1))
