"""Compares a run with its reference losses."""

import math

from data.protocol import evenly_spaced
from data.references.process import References
from runs.curves import save_curves
from runs.files import reporting_os_errors
from runs.run_folder import RunFolder
from training.callbacks.callback import Callback, Row, Weights
from training.callbacks.health_checks import check_for_leak
from training.evaluation import Evaluation
from training.loop import Trainer

SECONDS_AT_END = 30.0  # at most, to wait for the counting loss after the last step


class ReferenceLosses(Callback):
    """Compares a run with its reference losses, reports them, and draws its curves beside them."""

    def __init__(self, run: RunFolder, references: References):
        self.run = run
        self.references = references
        # whether all losses were known at the last announcement
        self.announced: bool | None = None
        self.last_loss = math.inf  # of the last evaluation

    def begin(self, trainer: Trainer) -> None:
        self._announce(trainer)

    def measured(self, trainer: Trainer, row: Row, evaluation: Evaluation) -> None:
        if self.references.is_computing_floor():
            trainer.report("waiting for the floor, which is computed once per text")
        window_floors = self.references.floor()
        if window_floors is not None:
            validation = trainer.evaluator.validation
            kept = evenly_spaced(len(window_floors), validation.n_windows)
            window_floors = window_floors[kept.numpy()]
            floor = float(window_floors.mean()) / validation.n_masked
            row["floor.valid"] = floor
            row["excess"] = evaluation.loss - floor
            check_for_leak(evaluation.window_losses, window_floors)

    def evaluated(self, trainer: Trainer, row: Row, best: Weights | None) -> None:
        self._announce(trainer)
        self.last_loss = row["loss.valid"]

    def end(self, trainer: Trainer) -> None:
        if trainer.progress() >= 1:
            self._announce(trainer, wait_seconds=SECONDS_AT_END)
            if not self.announced:
                trainer.report(
                    "counting was not computed by the end of the run (evaluate.py compares with it)"
                )
            counting = self.references.losses.get("counting", math.inf)
            if self.last_loss > counting:
                trainer.report(
                    f"loss.valid {self.last_loss:.4f} is above counting ({counting:.4f}): train longer,"
                    " because counting neighbors predicts this text better than the run"
                )
        with reporting_os_errors(trainer.report, self.run.curves_path.name):
            save_curves(
                self.run.curves_path,
                self.run.metrics(),
                self.references.losses,
                f"{trainer.evaluator.corpus}, {self.run.path.name}",
                self.run.planned(),
            )

    def _announce(self, trainer: Trainer, wait_seconds: float = 0.0) -> None:
        """Report and save the losses: once at the beginning, and once when all of them are known."""
        is_complete = self.references.is_complete(wait_seconds)
        if is_complete == self.announced:
            return
        self.announced = is_complete
        losses = ", ".join(
            f"{name} {loss:.2f}" for name, loss in self.references.losses.items()
        )
        trainer.report(
            f"reference losses: {losses} ({self.references.meaning(is_complete)})"
        )
        with reporting_os_errors(trainer.report, self.run.reference_lines_path.name):
            self.run.save_reference_lines(self.references.losses)
