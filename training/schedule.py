"""The training budget and everything that depends on how much of it is spent, as pure functions,
without PyTorch.

Sequence-length warmup is data: rows that say which windows are trained on during which share of the
budget. Short windows first make it easier to learn which visible characters matter; long windows
later give context.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Stage:
    """A row of the schedule, with one of its masking rates: a row with several becomes stages that
    end together."""

    until: float  # the share of the training budget at which the row ends
    seq_len: int
    masking_prob: float


def masking_rates(row: Mapping[str, Any], default: float) -> list[float]:
    """The masking rates of a row of `training.stages`: its own, one or a list, or else `default`."""
    rates = row.get("masking_prob", default)
    return rates if isinstance(rates, list) else [rates]


def stage_at(stages: Sequence[Stage], progress: float, step: int = 0) -> Stage:
    """The stage of a step at `progress`, the share of the training budget that is spent; at 1, of
    the last row.

    The steps of a row with several masking rates cycle through them.
    """
    until = next(
        (stage.until for stage in stages if progress < stage.until), stages[-1].until
    )
    row = [stage for stage in stages if stage.until == until]
    return row[step % len(row)]


def mean_masking_prob(stages: Sequence[Stage], stage: Stage) -> float:
    """The mean masking rate of the row of a stage, over which its steps cycle."""
    rates = [each.masking_prob for each in stages if each.until == stage.until]
    return sum(rates) / len(rates)


@dataclass(frozen=True)
class Schedule:
    """When things happen, as functions of `progress`, the share of the budget that is spent.

    The run ends at the first limit that it reaches; None: no limit.
    """

    max_steps: int | None
    max_chars: int | None
    max_seconds: float | None
    stages: Sequence[Stage]
    warmup: float
    decay: float
    final_learning_rate: float
    evaluations: int  # their number, evenly spaced, the last one at the end
    seconds_per_checkpoint: float

    def progress(self, *, step: int, chars: int, seconds: float) -> float:
        """The share of the budget that is spent: the largest share of any limit, at most 1. Of a
        limit of 0, all is."""
        spent = (
            (step, self.max_steps),
            (chars, self.max_chars),
            (seconds, self.max_seconds),
        )
        shares = [
            value / limit if limit else 1.0
            for value, limit in spent
            if limit is not None
        ]
        return min(1.0, max(shares))

    def learning_rate_at(self, progress: float) -> float:
        """The learning rate as a share of its peak: a linear rise, constant, then a linear fall to
        the final rate.

        The rise takes the first `warmup` of the budget, the fall the last `decay`. The rise starts
        above 0, so that the first step already trains.
        """
        if progress < self.warmup:
            return max(progress / self.warmup, 0.01)
        if progress > 1 - self.decay:
            left = (1 - progress) / self.decay
            return self.final_learning_rate + (1 - self.final_learning_rate) * left
        return 1.0

    def evaluations_due(self, progress: float) -> int:
        """The number of evaluations that are due up to `progress`, done or not."""
        return int(progress * self.evaluations + 1e-9)
