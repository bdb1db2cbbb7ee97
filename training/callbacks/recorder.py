"""Writes a run into its folder: rows, events, the best weights, and checkpoints."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from runs.files import reporting_os_errors
from runs.run_folder import RunFolder
from training.callbacks.callback import Callback, Row, Weights
from training.checkpoint import Content, save_last
from training.loop import Trainer

Report = Callable[[str], None]


class Recorder(Callback):
    """Writes the files of a run that grow or change. A full disk delays them."""

    def __init__(
        self,
        run: RunFolder,
        environment: Mapping[str, Any],
        in_background: bool = False,
    ):
        """`environment` holds the versions and settings that an exact resume depends on. With
        `in_background`, a thread writes copies of the weights; training on a CPU would leave it no
        core."""
        self.run = run
        self.environment = environment
        self.best_path = run.weights_path
        # writes the best weights; None: written
        self.best: Callable[[Path], None] | None = None
        self.waiting: list[Callable[[], None]] = []  # write rows and events, in order
        # the end of the program waits for it
        self.thread = ThreadPoolExecutor(1) if in_background else None
        self.saving: Future[None] | None = None
        self.what = ""  # is being saved

    def evaluated(self, trainer: Trainer, row: Row, best: Weights | None) -> None:
        self._queue(
            partial(self.run.append_metrics, dict(row)), "a row", trainer.report
        )
        if best is not None:
            self._finish(trainer.report)
            self.best = self.writer(
                best, {"step": row["step"], "loss.valid": row["loss.valid"]}
            )
            self._begin(
                self._save_best, "the best weights; will try again", trainer.report
            )

    def changed(self, trainer: Trainer, event: Mapping[str, Any]) -> None:
        self._queue(
            partial(self.run.append_event, dict(event)), "an event", trainer.report
        )

    def save(
        self, trainer: Trainer, weights: Weights, state: dict[str, Any], is_last: bool
    ) -> None:
        self._finish(trainer.report)
        if is_last:
            self._checkpoint(weights, state)()
            return
        what = "the checkpoint; will try again"
        with reporting_os_errors(trainer.report, what):
            self._begin(self._checkpoint(weights, state), what, trainer.report)

    def state_dict(self) -> dict[str, Any]:
        """The sizes of the run's files, after everything that waits is written. Raises OSError if
        that fails."""
        self._write()
        self._save_best()
        return {"environment": self.environment, "sizes": self.run.sizes()}

    def writer(self, weights: Weights, state: dict[str, Any]) -> Callable[[Path], None]:
        """Returns a function that writes a checkpoint with these weights and this state as they are
        now."""
        return Content.of(weights, state).save

    def _checkpoint(
        self, weights: Weights, state: dict[str, Any]
    ) -> Callable[[], None]:
        state["callbacks"]["run"] = self.state_dict()
        return partial(save_last, self.run.checkpoints, self.writer(weights, state))

    def _queue(self, write: Callable[[], None], what: str, report: Report) -> None:
        self.waiting.append(write)
        with reporting_os_errors(report, f"{what}; it stays queued"):
            self._write()

    def _write(self) -> None:
        """Write in order what waits, each row exactly once. If that raises OSError, the rest waits."""
        while self.waiting:
            self.waiting[0]()
            del self.waiting[0]

    def _save_best(self) -> None:
        if self.best is not None:
            self.best(self.best_path)
            self.best = None

    def _begin(self, write: Callable[[], None], what: str, report: Report) -> None:
        if self.thread:
            self.saving = self.thread.submit(write)
            self.what = what
        else:
            with reporting_os_errors(report, what):
                write()

    def _finish(self, report: Report) -> None:
        """Wait for the thread, and report if it has failed."""
        if self.saving:
            with reporting_os_errors(report, self.what):
                self.saving.result()
            self.saving = None
