"""Where a loss lies among the losses of known predictors, on the same positions."""

import math
from dataclasses import dataclass

import numpy as np

from auditing.pipelines.batch import Array

LEAK = 5.0  # standard errors below the floor
MIN_WINDOWS = 20  # with fewer, a standard error over windows says too little
NEAR_UNIGRAM = 0.1  # nats: a model this close to the unigram does not use the neighbors


@dataclass(frozen=True)
class Level:
    """A mean loss in nats, and its difference from a reference with the standard error of the pairs."""

    loss: float
    reference: float
    error: float  # of the difference; windows are independent, the positions of one are not
    n_windows: int

    @property
    def difference(self) -> float:
        """The loss minus the reference."""
        return self.loss - self.reference

    @property
    def z(self) -> float:
        """The difference in standard errors."""
        if not self.error:
            return math.copysign(math.inf, self.difference) if self.difference else 0.0
        return self.difference / self.error

    @property
    def is_leak(self) -> bool:
        """Whether the loss is below the reference, the floor, by more than chance."""
        return self.n_windows >= MIN_WINDOWS and self.z < -LEAK


def compare(losses: Array, reference: Array, windows: Array) -> Level:
    """The mean losses at the same positions, `[n]` each; `windows` `[n]` is the window of each position.

    The standard error is that of a ratio: windows have different numbers of positions.
    """
    difference = losses - reference
    n_windows = int(windows.max()) + 1
    sums = np.bincount(windows, weights=difference - difference.mean(), minlength=n_windows)
    n_used = len(np.unique(windows))
    error = np.sqrt((sums**2).sum() * n_used / max(n_used - 1, 1)) / len(difference)
    return Level(float(losses.mean()), float(reference.mean()), float(error), n_used)
