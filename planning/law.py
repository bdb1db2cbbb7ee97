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
WALKERS = 192
STEPS = 5_000
FRESH = 1e30  # characters of a text that is never repeated
# The parameters, with the means and deviations of their normal priors. A, S and B are excesses of a
# run of mean size and length, as shares of the spread of the losses. The floor is a share of the
# lowest loss.
PRIORS = {
    "log A": (-4.5, 1.0),
    "a": (0.4, 0.2),
    "log S": (-1.5, 1.5),
    "s": (0.3, 0.07),
    "log B": (-3.0, 1.0),
    "b": (1.6, 0.3),
    "c": (0.6, 0.2),
    "log noise": (math.log(0.02), 0.5),
    "log R": (math.log(30), 1.0),
    "logit of the floor": (-3.0, 0.6),
}
# of the play, the only text with a known floor
PLAY_PRIORS = PRIORS | {"s": (0.4, 0.4), "b": (1.2, 0.1)}
EXPONENTS = [1, 3, 5]  # a, s and b, which are positive
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
        low, middle, high = (f"{loss:.{digits}f}" for loss in self)
        return f"{middle} ({low} to {high})"


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
        logits = self.draws[-1]
        if self.known_floor is not None:
            return np.full_like(logits, self.known_floor)

        lowest = self.runs[2].min(-1)[..., None]
        return lowest / (1 + np.exp(-logits))

    def excess_and_deviation(
        self, n_weights: np.ndarray | float, n_chars: np.ndarray | float
    ) -> tuple[np.ndarray, np.ndarray]:
        """The expected loss above the floor by each law, and the deviation of its logarithm from
        run to run: each `[..., n_draws, n_points]`.
        """
        log_a, a, log_s, s, log_b, b, c, log_noise, log_repeats, _ = self.draws[
            ..., None
        ]
        repeats = np.exp(log_repeats)
        epochs_again = np.maximum(n_chars / np.float64(self.n_text) - 1, 0)
        again = self.n_text * repeats * -np.expm1(-epochs_again / repeats)
        worth = np.minimum(n_chars, self.n_text) + again

        mean_size, mean_length = np.log(self.runs[:2]).mean(-1)[..., None, None]
        size = np.log(n_weights) - mean_size
        length = np.log(n_chars) - mean_length
        fresh_length = np.log(worth) - mean_length
        of_size = np.exp(log_a - a * size)
        of_length = np.exp(log_s - s * fresh_length)
        of_start = np.exp(log_b - b * length - c * size)
        excess = of_size + of_length + of_start
        deviation = np.hypot(np.exp(log_noise), START_ERROR * of_start / excess)

        spread = np.ptp(self.runs[2], -1)[..., None, None]
        return spread * excess, deviation

    def log_density(self) -> np.ndarray:
        """The density of each draw, `[..., n_draws]`, by the runs and the priors."""
        sizes, lengths, losses = self.runs[..., None, :]
        excess = np.log(np.maximum(losses - self.floors[..., None], 1e-9))
        expected, deviation = self.excess_and_deviation(sizes, lengths)

        errors = (excess - np.log(expected)) / deviation

        means, deviations = priors(self.known_floor)
        prior = ((self.draws.T - means) / deviations) ** 2
        of_runs = (errors**2 / 2 + np.log(deviation) + excess).sum(-1)
        density = -of_runs - prior.sum(-1).T / 2

        is_allowed = (self.draws[EXPONENTS] > 0).all(0)
        return np.where(is_allowed, density, -np.inf)

    def expected(self, n_weights: float, n_chars: float) -> float:
        """The mean loss over all laws, without the noise of a run."""
        excess, _ = self.excess_and_deviation(n_weights, n_chars)
        return float((self.floors + excess[:, 0]).mean())

    def predict(self, n_weights: float, n_chars: float) -> Interval:
        """The loss of another run, with the noise of a run."""
        excess, deviation = self.excess_and_deviation(n_weights, n_chars)
        noise = np.random.default_rng(0).normal(0, deviation)
        return Interval.of(self.floors + (excess * np.exp(noise))[:, 0])


def priors(known_floor: float | None) -> np.ndarray:
    """The means and the deviations of the parameters, `[2, 10]`."""
    by_name = PRIORS if known_floor is None else PLAY_PRIORS
    return np.array(list(by_name.values())).T


def fit(
    runs: Sequence[Run], *, n_text: float = FRESH, floor: float | None = None
) -> Law:
    """The laws that suit runs on a text of `n_text` characters. Raises InputError if there are too
    few runs."""
    sizes = {run.n_weights for run in runs}
    lengths = {run.n_chars for run in runs}

    if len(runs) < MIN_RUNS or len(sizes) < 2 or len(lengths) < 3:
        raise InputError(
            f"not enough runs to extrapolate from: {MIN_RUNS} of 2 sizes and 3 lengths are needed"
        )

    return drawn(np.array(runs, dtype=float).T, n_text, floor)


def drawn(runs: np.ndarray, n_text: float, floor: float | None) -> Law:
    """Draw laws that suit `runs` `[3, ..., n_runs]`.

    Each half of an ensemble of laws moves along lines through random laws of the other half
    (Goodman and Weare 2010).
    """
    random = np.random.default_rng(0)
    n = WALKERS // 2
    means, deviations = priors(floor)
    halves = list[Law]()

    for _ in range(2):
        shape = (len(PRIORS), *runs.shape[1:-1], n)
        start = random.normal(0, 0.2, shape)
        halves.append(Law(runs, n_text, floor, (means + deviations * start.T).T))

    densities = [half.log_density() for half in halves]
    kept = list[np.ndarray]()

    for step in range(STEPS):
        for half, other in ((0, 1), (1, 0)):
            draws = halves[half].draws
            # from 1/2 to 2, with a density of 1 / sqrt(stretch)
            stretch = (1 + random.random(densities[half].shape)) ** 2 / 2
            chosen = random.integers(n, size=n)
            partners = halves[other].draws[..., chosen]
            end = partners + stretch * (draws - partners)

            moved = replace(halves[half], draws=end)
            density = moved.log_density()
            change = (len(PRIORS) - 1) * np.log(stretch) + density - densities[half]
            is_taken = np.log(random.random(density.shape)) < change

            draws = np.where(is_taken, moved.draws, draws)
            halves[half] = replace(moved, draws=draws)
            densities[half] = np.where(is_taken, density, densities[half])

            # before that, the walkers move to the laws that suit
            if step >= STEPS // 2 and step % 10 == 0:
                kept.append(draws)

    return replace(halves[0], draws=np.concatenate(kept, axis=-1))
