"""Adds the loss and the accuracy on pairs of text to each row."""

import math

from data.windows import WindowBatch
from training.callbacks.callback import Callback, Row
from training.evaluation import Evaluation
from training.loop import Trainer
from training.pair_objective import evaluate_pairs


class PairAccuracy(Callback):
    """Adds the loss and the accuracy on pairs. Guessing has an accuracy of one half."""

    def __init__(self, objective: str, validation: WindowBatch):
        """`objective` is the objective on pairs, nsp or sop."""
        self.objective = objective
        self.validation = validation

    def measured(self, trainer: Trainer, row: Row, evaluation: Evaluation) -> None:
        sums = trainer.sums
        n_pairs = float(sums["n_pairs"]) or math.nan  # nan: every step was skipped
        loss, accuracy = evaluate_pairs(trainer.model, self.validation)
        row[f"loss.{self.objective}.train"] = float(sums["pair_loss_sum"]) / n_pairs
        row[f"accuracy.{self.objective}.train"] = (
            float(sums["n_pairs_correct"]) / n_pairs
        )
        row[f"loss.{self.objective}.valid"] = loss
        row[f"accuracy.{self.objective}.valid"] = accuracy
