"""Adds the share of the training time that was spent waiting for data to each row."""

from data.windows.prefetch import Prefetched
from training.callbacks.callback import Callback, Row
from training.evaluation import Evaluation
from training.loop import Trainer

MOST_WAITING = 0.05  # of the training time; more is reported


class DataWaiting(Callback):
    """Adds the share of the time in which steps waited for windows of a text on the disk."""

    def __init__(self, windows: Prefetched):
        self.windows = windows

    def measured(self, trainer: Trainer, row: Row, evaluation: Evaluation) -> None:
        seconds = row["seconds"] - trainer.evaluated_at["seconds"]
        row["waiting"] = self.windows.waited / max(seconds, 1e-9)
        self.windows.waited = 0.0
        if row["waiting"] > MOST_WAITING:
            trainer.report(
                f"training waited for the disk for {row['waiting']:.0%} of its time: set FOLIO_CACHE"
                " to a folder on a faster disk"
            )
