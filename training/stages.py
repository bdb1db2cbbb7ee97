"""Sequence-length warmup as data: rows that say how long the windows are for which share of the training.

Short windows first make it easier to tell which of the visible characters matter; long ones later give context.
"""

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
