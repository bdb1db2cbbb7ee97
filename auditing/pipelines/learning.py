"""Checks of a trained pipeline: which mean its loss is, which weights learn, and where the loss lies."""

from collections.abc import Sequence

import numpy as np

from auditing.finding import Finding, Verdict
from auditing.pipelines.batch import Array
from auditing.pipelines.known_losses import Known, Measured, log_softmax, mean
from auditing.pipelines.levels import MIN_WINDOWS, NEAR_UNIGRAM, Level

PROBABILITY_SUM = 1e-3  # from 1
LEFT_OUT = 0.5  # the share of weight tensors that a pipeline may leave as they are


def are_probabilities(logits: Array) -> bool:
    """Whether the rows of "logits" are probabilities; rows of nan are left out."""
    rows = logits[np.isfinite(logits).all(-1)]
    return bool(len(rows) and rows.min() >= 0 and np.abs(rows.sum(-1) - 1).max() < PROBABILITY_SUM)


def to_log_probs(logits: Array) -> Array:
    """The log-probabilities that logits stand for; the logarithm if they are probabilities already."""
    if are_probabilities(logits):
        return np.log(np.maximum(logits.astype(np.float64), 1e-30))
    return log_softmax(logits)


def check_loss(measured: Sequence[Measured], known: Known | None) -> Finding:
    """Is the loss the mean over the labelled positions in nats? `known` is the number that it is equal to."""
    is_broken = known is not None and known.is_broken
    is_right = known is not None and known.bug is None
    cause = "None of the usual means: another loss or a penalty may have been added."
    return Finding(
        "loss",
        found=f"{measured[0].loss:.4f}",
        expected=f"{mean(measured[0]):.4f}",
        evidence="exact",
        verdict=Verdict.OK if is_right else Verdict.BROKEN if is_broken else Verdict.DIFFERS,
        bug=known.bug if known else "unknown-loss",
        cause="" if is_right else f"The loss is {known.what}." if known else cause,
    )


def check_logits(probabilities: bool) -> Finding:
    """Are the logits probabilities, so that the cross-entropy applies a second softmax?"""
    return Finding(
        "logits",
        found="probabilities" if probabilities else "not probabilities",
        expected="not probabilities",
        evidence="exact",
        verdict=Verdict.BROKEN if probabilities else Verdict.OK,
        bug="softmax-twice" if probabilities else None,
        cause="The model ends with a softmax, and cross-entropy applies another." if probabilities else "",
    )


def check_weights(unchanged: Sequence[str], n_weights: int, steps: int) -> Finding:
    """Does training change the weights?"""
    is_frozen = n_weights > 0 and len(unchanged) == n_weights
    some = ", ".join(unchanged[:3]) + (", ..." if len(unchanged) > 3 else "")
    bug, cause = "weights-left-out", f"Frozen, unused, or not in the optimizer: {some}."
    if is_frozen:
        bug, cause = "weights-unchanged", "The learning rate is 0, or the loss is detached from the weights."
    is_broken = len(unchanged) > LEFT_OUT * n_weights
    return Finding(
        f"weights after step {steps:,}",
        found=f"{len(unchanged)} tensors unchanged",
        expected="0 tensors unchanged",
        evidence=f"of {n_weights}",
        verdict=Verdict.BROKEN if is_broken else Verdict.DIFFERS if unchanged else Verdict.OK,
        bug=bug if unchanged else None,
        cause=cause if unchanged else "",
    )


def check_finite(losses: Sequence[float]) -> Finding:
    """Are all training losses numbers?"""
    bad = [i for i, loss in enumerate(losses, start=1) if not np.isfinite(loss)]
    cause = "A batch without labels, whose mean is 0 / 0, or a learning rate that is too high."
    return Finding(
        "training losses",
        found=f"not finite at step {bad[0]:,}" if bad else "finite",
        expected="finite",
        evidence=f"of {len(losses):,}",
        verdict=Verdict.BROKEN if bad else Verdict.OK,
        bug="not-finite" if bad else None,
        cause=cause if bad else "",
    )


def check_unigram(level: Level, when: str) -> Finding:
    """Is the loss below that of guessing by frequency?"""
    is_above, is_near = level.difference > NEAR_UNIGRAM, level.difference > -NEAR_UNIGRAM
    cause = f"Hardly below the unigram or above it, {when}: too short or broken."
    return Finding(
        "loss at [MASK], unigram",
        found=f"{level.loss:.3f}",
        expected=f"below {level.reference:.3f} - {NEAR_UNIGRAM}",
        evidence=f"z={level.z:.0f}",
        verdict=Verdict.DIFFERS if is_near else Verdict.OK,
        bug="worse-than-unigram" if is_above else "plateau" if is_near else None,
        cause=cause if is_near else "",
        z=level.z,
    )


def check_counting(level: Level, when: str) -> Finding:
    """Is the loss below that of counting n-grams?"""
    is_above = level.difference > 0
    return Finding(
        "loss at [MASK], counting",
        found=f"{level.loss:.3f}",
        expected=f"below {level.reference:.3f}",
        evidence=f"z={level.z:.0f}",
        verdict=Verdict.DIFFERS if is_above else Verdict.OK,
        bug="worse-than-counting" if is_above else None,
        cause=f"Above counting {when}: too short or broken." if is_above else "",
        z=level.z,
    )


def check_floor(level: Level, source: tuple[str, str] | None) -> Finding:
    """Is the loss below the lowest possible one? `source` is the bug and the cause of a leak that was located."""
    is_leak = level.is_leak
    bug, cause = source or ("leak", "The source of the information was not found.")
    is_broken = is_leak and bug != "leak-evaluation-masks"
    return Finding(
        "loss at [MASK], floor",
        found=f"{level.loss:.3f} ({level.difference:+.3f})",
        expected=f"at least {level.reference:.3f}",
        evidence=f"z={level.z:.0f}" if level.n_windows >= MIN_WINDOWS else f"only {level.n_windows} windows",
        verdict=Verdict.BROKEN if is_broken else Verdict.DIFFERS if is_leak else Verdict.OK,
        bug=bug if is_leak else None,
        cause=cause if is_leak else "",
        z=level.z,
    )
