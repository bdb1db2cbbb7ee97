"""Detects plateaus, divergence, ignored labels, and leaks; skips steps that are not finite."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from runs.errors import StoppedError
from runs.statistics import paired_difference
from training.callbacks.callback import Callback, Row, Weights
from training.evaluation import Evaluation
from training.schedule import Stage

if TYPE_CHECKING:
    from training.loop import Trainer

LEAK_STANDARD_ERRORS = 5.0
SKIPPED_IN_A_ROW = 20
# for skipped steps, on devices where reading their number synchronizes
STEPS_BETWEEN_CHECKS = 64
IGNORED_SHARE = 0.01
MASKED_BY = "masking.strategy, masking.no_mask_tokens, masking.masking_prob"
PLATEAU_EVALUATIONS = 3
PLATEAU_CHARS = 1_000_000  # before that, a healthy model may be near the unigram loss
PLATEAU_NATS = 0.25


class HealthCheckError(StoppedError):
    """Further training makes no sense; the message is one line for the user."""

    raised_by_all = True


def check_for_leak(losses: np.ndarray, floor: np.ndarray) -> None:
    """Raise HealthCheckError if the loss is below the floor by more than 5 standard errors.

    `losses` and `floor` `[n_windows]` are sums over the same masked positions. The standard error
    is that of the paired difference over windows, because positions of one window are not
    independent.
    """
    difference = paired_difference(losses, floor)
    if difference.stderr is None:
        return
    if -difference.mean > LEAK_STANDARD_ERRORS * difference.stderr:
        raise HealthCheckError(
            f"the validation loss is {-difference.mean:.3g} nats per window below the lowest possible loss, more than"
            f" {LEAK_STANDARD_ERRORS:g} standard errors: labels leak into the inputs; check what the model receives at"
            " the masked positions"
        )


def check_row(row: Row, masked_by: str = MASKED_BY) -> None:
    """Raise HealthCheckError if a loss is infinite or NaN, or if no character was masked."""
    if row.get("ignored_labels") == 1:
        raise HealthCheckError(
            f"no character was masked since the last evaluation: check {masked_by}"
        )

    if not (math.isfinite(row["loss.train"]) and math.isfinite(row["loss.valid"])):
        raise HealthCheckError(
            f"the loss is {row['loss.train']:g} in training and {row['loss.valid']:g} in validation at step"
            f" {row['step']:,} (windows of {row['seq_len']}): lower training.learning_rate and"
            " training.muon_learning_rate, or raise training.warmup"
        )


def check_skipped_steps(
    skipped_in_a_row: torch.Tensor, step: int, seq_len: int
) -> None:
    """Raise HealthCheckError if too many steps in a row were skipped. Reading their number
    synchronizes."""
    n_skipped = int(skipped_in_a_row)
    if n_skipped >= SKIPPED_IN_A_ROW:
        raise HealthCheckError(
            f"the loss or its gradients were infinite or NaN in the last {n_skipped} steps, up to step"
            f" {step:,} (windows of {seq_len}), so the weights did not change: lower training.learning_rate and"
            " training.muon_learning_rate, raise training.warmup, or use training.precision=float32"
        )


class HealthChecks(Callback):
    """Stops a run whose training makes no sense, and warns once about each sign of trouble."""

    name = "health"

    def __init__(self, unigram: float, masked_by: str = MASKED_BY):
        """`unigram` is the loss (nats) of predicting each token by its frequency; `masked_by` are the
        keys that decide what is masked."""
        self.unigram = unigram
        self.masked_by = masked_by
        self.given: list[str] = []  # the names of the warnings so far
        self.n_near_unigram = 0  # evaluations in a row

    def stepped(self, trainer: "Trainer", stage: Stage) -> None:
        update = trainer.training_step.update
        if not update.reading_synchronizes or trainer.step % STEPS_BETWEEN_CHECKS == 0:
            check_skipped_steps(update.skipped_in_a_row, trainer.step, stage.seq_len)

    def measured(self, trainer: "Trainer", row: Row, evaluation: Evaluation) -> None:
        check_skipped_steps(
            trainer.training_step.update.skipped_in_a_row, trainer.step, row["seq_len"]
        )
        if row["step"]:  # nothing is known of a training of 0 steps
            check_row(row, self.masked_by)

    def evaluated(self, trainer: "Trainer", row: Row, best: Weights | None) -> None:
        self.n_near_unigram += 1
        if row["loss.valid"] <= self.unigram - PLATEAU_NATS:
            self.n_near_unigram = 0
        if row.get("ignored_labels", 0) > IGNORED_SHARE:
            self._warn(
                trainer,
                "ignored labels",
                f"{row['ignored_labels']:.0%} of the selected positions have no label, because windows have too few"
                f" characters that may be masked: check {self.masked_by}",
            )

        if self.n_near_unigram >= PLATEAU_EVALUATIONS and row["chars"] >= PLATEAU_CHARS:
            self._warn(
                trainer,
                "plateau",
                "the loss stays near unigram: the model predicts by frequency and hardly uses the neighbors. Usual"
                " causes: a learning rate that is too high or too low (training.learning_rate, training.optimizer), too"
                " many or too few masks (masking.masking_prob), long windows too early (training.stages), or wrong"
                " labels",
            )

    def _warn(self, trainer: "Trainer", name: str, warning: str) -> None:
        if name not in self.given:
            self.given.append(name)
            trainer.report(f"warning: {warning}")

    def state_dict(self) -> dict[str, Any]:
        return {"given": self.given, "n_near_unigram": self.n_near_unigram}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.given = list(state["given"])
        self.n_near_unigram = int(state["n_near_unigram"])
