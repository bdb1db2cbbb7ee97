"""Detects plateaus, divergence, ignored labels, and leaks."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

LEAK_STANDARD_ERRORS = 5.0
SKIPPED_IN_A_ROW = 20
IGNORED_SHARE = 0.01
PLATEAU_EVALUATIONS = 3
PLATEAU_CHARS = 1_000_000  # before that, a healthy model may be near the unigram loss
PLATEAU_NATS = 0.25


class HealthCheckError(RuntimeError):
    """Further training makes no sense; the message is one line for the user."""


def check_for_leak(losses: np.ndarray, floor: np.ndarray | None) -> None:
    """Raise HealthCheckError if the loss is below the floor by more than 5 standard errors.

    `losses` and `floor` `[n_windows]` are sums over the same masked positions. The standard error is that of the
    paired difference over windows, because positions of one window are not independent. Without a floor nothing is
    checked.
    """
    if floor is None or len(losses) < 2:
        return
    difference = losses - floor
    error = difference.std(ddof=1) / len(difference) ** 0.5
    if difference.mean() < -LEAK_STANDARD_ERRORS * error:
        raise HealthCheckError(
            f"the validation loss is {-difference.mean() / error:.0f} standard errors below the lowest possible loss:"
            " labels leak into the inputs; check what the model receives at the masked positions"
        )


def check_row(row: Mapping[str, Any]) -> None:
    """Raise HealthCheckError if a loss is infinite or NaN, or if no character was masked."""
    if row.get("ignored_labels") == 1:
        raise HealthCheckError(
            "no character was masked since the last evaluation: the masking strategy gives every character the weight"
            " 0, or masking.no_mask_tokens excludes them all"
        )
    if not (math.isfinite(row["loss.train"]) and math.isfinite(row["loss.valid"])):
        raise HealthCheckError(
            f"the loss is {row['loss.train']:g} in training and {row['loss.valid']:g} in validation at step"
            f" {row['step']:,} (windows of {row['seq_len']}): lower training.learning_rate and"
            " training.muon_learning_rate, or raise training.warmup"
        )


def check_skipped_steps(skipped_in_a_row: torch.Tensor, step: int, seq_len: int) -> None:
    """Raise HealthCheckError if too many steps in a row were skipped. Reading their number synchronizes."""
    if (n_skipped := int(skipped_in_a_row)) >= SKIPPED_IN_A_ROW:
        raise HealthCheckError(
            f"the loss or its gradients were infinite or NaN in the last {n_skipped} steps, up to step"
            f" {step:,} (windows of {seq_len}), so the weights did not change: lower training.learning_rate and"
            " training.muon_learning_rate, raise training.warmup, or use training.precision=float32"
        )


def is_near_unigram(row: Mapping[str, Any], unigram: float) -> bool:
    """Whether an evaluation is hardly better than predicting each character by its frequency."""
    return row["loss.valid"] > unigram - PLATEAU_NATS


def is_on_plateau(rows: Sequence[Mapping[str, Any]], unigram: float) -> bool:
    """Whether the loss stayed near the unigram loss for the last evaluations."""
    if len(rows) < PLATEAU_EVALUATIONS or rows[-1]["chars"] < PLATEAU_CHARS:
        return False
    return all(is_near_unigram(row, unigram) for row in rows[-PLATEAU_EVALUATIONS:])


def new_warnings(
    given: list[str], row: Mapping[str, Any], rows: Callable[[], Sequence[Mapping[str, Any]]], unigram: float
) -> list[str]:
    """The warnings that an evaluation gives reason for, unless their names are in `given`, to which they are added.

    `rows` reads all evaluations so far.
    """
    found = []
    if "ignored labels" not in given and row.get("ignored_labels", 0) > IGNORED_SHARE:
        given.append("ignored labels")
        found.append(
            f"warning: {row['ignored_labels']:.0%} of the selected positions have no label, because windows have too"
            " few characters that may be masked: check masking.strategy, masking.no_mask_tokens, masking.masking_prob"
        )
    if "plateau" not in given and is_near_unigram(row, unigram) and is_on_plateau(rows(), unigram):
        given.append("plateau")
        found.append(
            "warning: the loss stays near unigram: the model predicts by frequency and hardly uses the neighbors. Usual"
            " causes: a learning rate that is too high or too low (training.learning_rate, training.optimizer), too"
            " many or too few masks (masking.masking_prob), long windows too early (training.stages), or wrong labels"
        )
    return found
