"""What a loss curve alone does not tell: that labels leak, that nothing is learnt, that nothing can be any more."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

LEAK_STANDARD_ERRORS = 5.0
SKIPPED_IN_A_ROW = 20
PLATEAU_EVALUATIONS = 3
PLATEAU_CHARS = 1_000_000  # trained on; before it, near unigram is where a healthy model may be
PLATEAU_NATS = 0.25


class HealthCheckError(RuntimeError):
    """Training on makes no sense; the message is one line for the user."""


class LeakFoundError(HealthCheckError):
    """The validation loss is below what is possible."""


class DivergedError(HealthCheckError):
    """The loss is no number any more."""


class UnsavedError(HealthCheckError):
    """The training is done, and its result could not be written."""


def check_for_leak(losses: np.ndarray, floor: np.ndarray) -> None:
    """Raise LeakFoundError where a loss is below the floor by more than 5 standard errors.

    `losses` and `floor` `[n_windows]` are sums over the same masked positions. The standard error is that of the
    paired difference, clustered by window: positions of one window are not independent of each other.
    """
    difference = losses - floor
    error = difference.std(ddof=1) / len(difference) ** 0.5
    if difference.mean() < -LEAK_STANDARD_ERRORS * error:
        raise LeakFoundError(
            f"the validation loss is {-difference.mean() / error:.0f} standard errors below the lowest that is"
            " possible: labels leak into the inputs; look at what the model is given at the masked positions"
        )


def check_for_divergence(loss_train: float, loss_valid: float, step: int, seq_len: int) -> None:
    """Raise DivergedError where a loss is infinite or not a number."""
    if not (math.isfinite(loss_train) and math.isfinite(loss_valid)):
        raise DivergedError(
            f"the loss is {loss_train:g} in training and {loss_valid:g} in validation at step {step:,} (windows of"
            f" {seq_len}): lower training.learning_rate and training.muon_learning_rate, or raise training.warmup"
        )


def check_for_skipped_steps(skipped_in_a_row: int, step: int, seq_len: int) -> None:
    """Raise DivergedError where too many steps in a row gave nothing that the weights could be changed by."""
    if skipped_in_a_row >= SKIPPED_IN_A_ROW:
        raise DivergedError(
            f"the loss or its gradients were infinite or no numbers in the last {skipped_in_a_row} steps, up to step"
            f" {step:,} (windows of {seq_len}); none of them changed the weights. Lower training.learning_rate and"
            " training.muon_learning_rate, raise training.warmup, or use training.precision=float32"
        )


def is_on_plateau(rows: Sequence[Mapping[str, Any]], unigram: float) -> bool:
    """Whether the loss has stayed near that of guessing by frequency for the last evaluations."""
    if len(rows) < PLATEAU_EVALUATIONS or rows[-1]["chars"] < PLATEAU_CHARS:
        return False
    return all(is_near_unigram(row, unigram) for row in rows[-PLATEAU_EVALUATIONS:])


def is_near_unigram(row: Mapping[str, Any], unigram: float) -> bool:
    """Whether an evaluation found little more than how frequent each character is."""
    return row["loss.valid"] > unigram - PLATEAU_NATS


PLATEAU_ADVICE = (
    "the loss stays near unigram: the model has learnt how frequent each character is, and little of its neighbours."
    " Usual causes: a learning rate too high or too low (training.learning_rate, training.optimizer), too many or"
    " too few masks (masking.masking_prob), long windows too early (training.stages), or labels that are broken"
)
