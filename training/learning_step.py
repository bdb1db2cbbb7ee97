"""Training steps whose batches depend on the losses of earlier ones."""

import torch

from data.batch import Batch
from training.objective import Sums
from training.schedule import Stage
from training.step import TrainingStep


class LearningStep(TrainingStep):
    """Shows the losses to a source that learns from them, as `masking.strategy=adaptive` does."""

    def __call__(self, stage: Stage, progress: float = 0.0) -> Sums:
        batches = self.draw(stage, progress)
        sums, losses = self.run_update(batches)
        for batch, batch_losses in zip(batches, losses, strict=True):
            # what it learns must stay finite
            self.observe(batch, batch_losses.nan_to_num(posinf=0.0, neginf=0.0))
        return sums

    def observe(self, batch: Batch, losses: torch.Tensor) -> None:
        self.source.observe(batch, losses)  # type: ignore[attr-defined]
