"""The training budget, and what happens when: functions of how much of it is spent."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """One row of the schedule: constant shapes, so that each is compiled once."""

    until: float  # the share of the training budget at which the row ends
    seq_len: int
    masking_prob: float


def stage_at(stages: Sequence[Stage], progress: float) -> Stage:
    """The stage in force at `progress`, the share of the training budget that is spent.

    A row holds for progress < until; at the border the next one begins, and the last one holds to the end.
    """
    for stage in stages:
        if progress < stage.until:
            return stage
    return stages[-1]


@dataclass(frozen=True)
class Budget:
    """How long to train. Every limit that is set holds: the run ends at the first that is reached."""

    max_steps: int | None = None
    max_chars: int | None = None
    max_seconds: float | None = None

    def progress(self, *, step: int, chars: int, seconds: float) -> float:
        """The share of the budget that is spent: the largest share of any limit; 1 or more ends the run."""
        spent = ((step, self.max_steps), (chars, self.max_chars), (seconds, self.max_seconds))
        return max(value / limit for value, limit in spent if limit is not None)


def learning_rate_at(progress: float, *, warmup: float, decay: float, final: float) -> float:
    """The learning rate as a share of its peak: linearly up, hold, linearly down to `final`.

    `warmup` and `decay` are shares of the budget: the rise takes the first, the fall the last. The rise starts
    above 0, so that the first step already trains.
    """
    if progress < warmup:
        return max(progress / warmup, 0.01)
    if progress > 1 - decay:
        left = max(0.0, (1 - progress) / decay)
        return final + (1 - final) * left
    return 1.0


@dataclass(frozen=True)
class Schedule:
    """When things happen, all as functions of the share of the budget that is spent."""

    budget: Budget
    stages: Sequence[Stage]
    warmup: float
    decay: float
    final_learning_rate: float
    evaluations: int  # how many, evenly spaced, the last one at the end
    evaluations_per_sample: int  # 0: no samples
    seconds_per_checkpoint: float

    def learning_rate_factor(self, progress: float) -> float:
        """The learning rate as a share of its peak."""
        return learning_rate_at(progress, warmup=self.warmup, decay=self.decay, final=self.final_learning_rate)

    def evaluations_due(self, progress: float) -> int:
        """How many evaluations there are up to `progress`."""
        return int(min(progress, 1) * self.evaluations + 1e-9)

    def is_sample_due(self, n_evaluations: int) -> bool:
        """Whether samples are drawn after this evaluation, the first being 1."""
        return self.evaluations_per_sample > 0 and n_evaluations % self.evaluations_per_sample == 0
