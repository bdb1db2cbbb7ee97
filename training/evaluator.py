"""The rows of metrics.jsonl: an evaluation and the training since the one before."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from data.bound import bound_masks
from data.protocol import ValidationSet
from data.windows import WindowBatch
from distributed.processes import SINGLE, Processes
from training.background import References
from training.evaluation import Evaluation, any_order_bound, evaluate, evaluate_pairs, per_character, weight_norm
from training.objective import StepSums


@dataclass(frozen=True)
class Interval:
    """The steps since the last evaluation. Their sums stay on the device until the next one."""

    start: Mapping[str, Any]  # step, chars and seconds of the last evaluation
    sums: StepSums


def selection_loss(row: Mapping[str, Any]) -> float:
    """The loss of a row that decides which weights are the best: the any-order bound, if there is one."""
    return row.get("loss.bound", row["loss.valid"])


@dataclass(frozen=True)
class Evaluator:
    """Evaluates a model by the protocol, and builds the rows of metrics.jsonl."""

    model: nn.Module
    validation: ValidationSet
    mask_token: int
    corpus: str  # its name
    references: References
    with_bound: bool = False  # whether rows have the any-order bound: if the model is trained at several masking rates
    pairs_objective: str = ""  # nsp or sop, if the model is trained on pairs of text
    validation_pairs: WindowBatch | None = None
    processes: Processes = SINGLE

    def evaluate(self, interval: Interval, now: Mapping[str, Any]) -> tuple[dict[str, Any], Evaluation]:
        """A row of metrics.jsonl, and the evaluation in it. `now` holds the row's step, chars, seconds and settings."""
        mask_token, seq_len = self.mask_token, now["seq_len"]
        evaluation = evaluate(
            self.model, self.validation, mask_token=mask_token, seq_len=seq_len, processes=self.processes
        )
        totals = {name: float(total) for name, total in zip(StepSums._fields, interval.sums, strict=True)}
        n_labels, n_positions = totals["n_labels"] or math.nan, totals["n_positions"]  # nan: every step was skipped
        steps, chars, seconds = (now[name] - interval.start[name] for name in ("step", "chars", "seconds"))
        row = {
            **now,
            "corpus": self.corpus,
            "loss.train": totals["loss"] / (totals["n_steps"] or math.nan),
            "accuracy.train": totals["n_correct"] / n_labels,
            "loss.valid": evaluation.loss,
            "loss.valid_stderr": evaluation.loss_stderr,
            "loss.valid_at_seq_len": evaluation.loss_at_seq_len,
            "accuracy.valid": evaluation.accuracy,
            "grad_norm": totals["grad_norm"] / steps,
            "weight_norm": weight_norm(self.model),
            "chars_per_second": round(chars / max(seconds, 1e-9), 1),
        }
        if evaluation.per_character is not None:
            row |= per_character(evaluation.per_character)
        if totals["n_labels"] < n_positions:
            row["ignored_labels"] = 1 - totals["n_labels"] / n_positions
        if self.with_bound:
            windows, masks = self.validation.windows, bound_masks(self.validation, rounds=1)
            row["loss.bound"] = any_order_bound(self.model, windows, masks, mask_token, self.processes).mean().item()
        if self.validation_pairs is not None:
            row |= self._pairs(totals, self.validation_pairs)
        if self.references.floor() is not None:
            floor = self.references.losses["floor"]
            row |= {"floor.valid": floor, "excess": evaluation.loss - floor}
        return row, evaluation

    def _pairs(self, totals: Mapping[str, float], validation: WindowBatch) -> dict[str, float]:
        """The second objective's entries of a row. Guessing has an accuracy of one half."""
        name, n_pairs = self.pairs_objective, totals["n_pairs"] or math.nan
        loss, accuracy = evaluate_pairs(self.model, validation)
        return {
            f"loss.{name}.train": totals["pair_loss_sum"] / n_pairs,
            f"accuracy.{name}.train": totals["n_pairs_correct"] / n_pairs,
            f"loss.{name}.valid": loss,
            f"accuracy.{name}.valid": accuracy,
        }
