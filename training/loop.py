"""The training loop: read it straight down."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from distributed.sharding import Weights, whole_weights
from runs.curves import save_curves
from runs.files import reporting_os_errors
from runs.row_queue import RowQueue
from runs.run_folder import RunFolder
from training import health_checks
from training.background import SECONDS_AT_END
from training.callbacks import Callbacks, Guess, KnobPanel
from training.checkpoint import environment, save_best, save_last
from training.clock import TrainingClock
from training.compilation import Compilation
from training.evaluation import Evaluation
from training.evaluator import Evaluator, Interval, selection_loss
from training.objective import StepSums
from training.optimizers import learning_rate_of, set_learning_rate
from training.schedule import Schedule, Stage, mean_rate, stage_at
from training.step import TrainingStep

STEPS_BETWEEN_CHECKS = 64  # for skipped steps, on devices where reading their number synchronizes
COUNTERS = ("step", "chars", "wall_seconds", "n_evaluations", "best_loss", "warnings")


class Decisions(NamedTuple):
    """Values that the first process decides for all: they depend on the clock, on signals or on the user."""

    progress: float  # the share of the budget that is spent
    must_stop: bool
    must_save: bool
    has_request: bool  # whether the user wants other values of the knobs


class Trainer:
    """Trains a model and writes the run's files."""

    def __init__(
        self,
        training_step: TrainingStep,
        schedule: Schedule,
        evaluator: Evaluator,
        sample: Callable[[float], Sequence[Sequence[Guess]]],
        compilation: Compilation,
    ):
        """`sample` masks prompts at a given rate and returns the model's guesses."""
        self.training_step, self.model, self.device = training_step, training_step.model, training_step.device
        self.processes = training_step.processes
        self.schedule = schedule
        self.evaluator = evaluator
        self.references = evaluator.references
        self.sample = sample
        self.compilation = compilation
        self.clock = TrainingClock(self.device)
        self.knobs = KnobPanel([stage.masking_prob for stage in schedule.stages])
        self.rows = RowQueue()
        self.step = self.chars = self.n_evaluations = 0
        self.began = self.wall_seconds = 0.0
        self.best_loss = float("inf")
        self.warnings: list[str] = []  # the names of those given so far
        self.interval = Interval(self.position(), StepSums.zeros(self.device))

    def train(
        self, run: RunFolder | None, callbacks: Callbacks, is_stopped: Callable[[], bool] = lambda: False
    ) -> None:
        """Train until the budget is spent or `is_stopped`; evaluate, sample and save in between.

        Only the first of several processes has a `run` to write to. Raises HealthCheckError if further training makes
        no sense, and OSError if the last state cannot be saved.
        """
        self.began, last_saved = time.monotonic() - self.wall_seconds, time.monotonic()
        if run:
            self.references.announce(run, callbacks.says)
        now = self._decide(callbacks, is_stopped, last_saved)
        if now.progress < 1:
            with self.processes.watchdog.busy():
                self.compilation.compile(self.schedule.stages, callbacks.says)
        self.model.train()
        self.clock.start()
        while now.progress < 1 and not now.must_stop:
            if now.has_request:
                self._turn_knobs(run, callbacks)
            stage = self.knobs.applied_to(stage_at(self.schedule.stages, now.progress, self.step))
            if not self.compilation.is_ready(stage):
                with self._paused():
                    self.compilation.prepare(stage, callbacks.says)

            factor = self.schedule.learning_rate_factor(now.progress) * self.knobs.knobs.learning_rate_factor
            set_learning_rate(self.training_step.optimizers, factor)
            for total, value in zip(self.interval.sums, self.training_step(stage, now.progress), strict=True):
                total += value
            self.step += 1
            self.processes.watchdog.progressed()
            self.chars += self.training_step.chars_per_step
            if not self.training_step.reading_synchronizes or self.step % STEPS_BETWEEN_CHECKS == 0:
                health_checks.check_skipped_steps(self.training_step.skipped_in_a_row, self.step, stage.seq_len)

            now = self._decide(callbacks, is_stopped, last_saved)
            callbacks.progressed(now.progress)
            if self.schedule.evaluations_due(now.progress) > self.n_evaluations:
                with self._paused():
                    self._evaluate(run, callbacks, stage, now.progress)
            if now.must_save:
                with self._paused(), reporting_os_errors(callbacks.says, "the checkpoint; will try again"):
                    self._save(run)
                last_saved = time.monotonic()
        self.clock.stop()
        with self.processes.watchdog.busy():
            self._save(run)
            if run:
                self._finish(run, callbacks, now.progress)

    def _finish(self, run: RunFolder, callbacks: Callbacks, progress: float) -> None:
        """Wait for the reference losses, and draw the curves."""
        if progress >= 1:
            self.references.announce(run, callbacks.says, wait_seconds=SECONDS_AT_END)
        with reporting_os_errors(callbacks.says, run.curves_path.name):
            title = f"{self.evaluator.corpus}, {run.path.name}"
            save_curves(run.curves_path, run.metrics(), self.references.losses, title)

    def _decide(self, callbacks: Callbacks, is_stopped: Callable[[], bool], last_saved: float) -> Decisions:
        must_save = time.monotonic() - last_saved > self.schedule.seconds_per_checkpoint
        wanted = callbacks.wanted_knobs()
        has_request = wanted is not None and wanted != self.knobs.requested
        progress, *flags = self.processes.agree(self.progress(), is_stopped(), must_save, has_request)
        return Decisions(progress, *map(bool, flags))

    @contextmanager
    def _paused(self) -> Iterator[None]:
        """Work that is not training: the clock stops, and other processes wait for it."""
        with self.clock.stopped(), self.processes.watchdog.busy():
            yield

    def _turn_knobs(self, run: RunFolder | None, callbacks: Callbacks) -> None:
        event = self.knobs.apply(self.processes.from_first(callbacks.wanted_knobs()), callbacks.says, self.position)
        if event and run:
            with reporting_os_errors(callbacks.says, "an event; it stays queued"):
                self.rows.append(run.append_event, event)

    def progress(self) -> float:
        """The share of the budget that is spent; at 1 or more the run ends."""
        return self.schedule.budget.progress(step=self.step, chars=self.chars, seconds=self.clock.seconds)

    def position(self) -> dict[str, Any]:
        return {"step": self.step, "chars": self.chars, "seconds": round(self.clock.seconds, 3)}

    def _evaluate(self, run: RunFolder | None, callbacks: Callbacks, stage: Stage, progress: float) -> None:
        self.n_evaluations, self.wall_seconds = self.schedule.evaluations_due(progress), time.monotonic() - self.began
        health_checks.check_skipped_steps(self.training_step.skipped_in_a_row, self.step, stage.seq_len)
        rate = self.knobs.knobs.masking_prob or mean_rate(self.schedule.stages, stage)
        settings = {
            "wall_seconds": round(self.wall_seconds, 3),
            "seq_len": stage.seq_len,
            "masking_prob": rate,
            "learning_rate": learning_rate_of(self.training_step.optimizers),
        }
        row, evaluation = self.evaluator.evaluate(self.interval, self.position() | settings)
        row |= self.knobs.row()
        health_checks.check_row(row)
        self.interval = Interval(self.position(), StepSums.zeros(self.device))
        is_best = selection_loss(row) < self.best_loss
        best = whole_weights(self.model, self.processes.is_first) if is_best else None
        if run:
            self._record(run, callbacks, row, evaluation, best)
        self.best_loss = self.processes.from_first(self.best_loss)
        if self.n_evaluations % self.schedule.evaluations_per_sample == 0:
            callbacks.sampled(self.sample(rate))

    def _record(
        self, run: RunFolder, callbacks: Callbacks, row: dict[str, Any], evaluation: Evaluation, best: Weights | None
    ) -> None:
        """Write a row, and the weights `best` if it is the best so far."""
        self.references.announce(run, callbacks.says)
        with reporting_os_errors(callbacks.says, "a row; it stays queued"):
            self.rows.append(run.append_metrics, row)
        callbacks.evaluated(row)
        health_checks.check_for_leak(evaluation.window_losses, self.references.floor())
        for warning in health_checks.new_warnings(self.warnings, row, run.metrics, self.references.losses["unigram"]):
            callbacks.says(warning)
        if best is not None:
            with reporting_os_errors(callbacks.says, "the best weights"):
                save_best(run.checkpoints, best, {"step": self.step, "loss.valid": evaluation.loss})
                self.best_loss = selection_loss(row)

    def _save(self, run: RunFolder | None) -> None:
        self.wall_seconds = time.monotonic() - self.began
        state, weights = self.state_dict(), whole_weights(self.model, self.processes.is_first)
        if run:
            self.rows.write_all()
            machine = environment(self.device, self.compilation.is_wanted, self.processes.n)
            save_last(run.checkpoints, weights, state | {"environment": machine, "sizes": run.sizes()})

    def state_dict(self) -> dict[str, Any]:
        """Everything except the weights that decides how training continues."""
        return {name: getattr(self, name) for name in COUNTERS} | {
            "seconds": self.clock.seconds,
            "knobs": self.knobs.state_dict(),
            "interval": {"start": self.interval.start, "sums": self.interval.sums._asdict()},
            "training_step": self.training_step.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name in COUNTERS:
            setattr(self, name, state[name])
        self.clock.set(state["seconds"])
        # With a longer budget the evaluations are farther apart, so fewer of them are done.
        self.n_evaluations = min(self.n_evaluations, self.schedule.evaluations_due(self.progress()))
        self.knobs.load_state_dict(state["knobs"])
        start, sums = state["interval"]["start"], state["interval"]["sums"]
        if isinstance(sums, list):  # earlier versions had other sums: the interval starts here
            self.interval = Interval(self.position(), StepSums.zeros(self.device))
        else:
            self.interval = Interval(start, StepSums(**{name: total.to(self.device) for name, total in sums.items()}))
        self.training_step.load_state_dict(state["training_step"])
