"""The training loop: read it straight down."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from data.protocol import ValidationSet
from data.vocabulary import Vocabulary
from data.windows import WindowBatch
from runs.curves import save_curves
from runs.files import reporting_os_errors
from runs.knobs import KnobError, Knobs, knobs_of
from runs.run_folder import RunFolder
from training.background import References
from training.callbacks import Callbacks
from training.checkpoint import save_last, save_state, save_weights
from training.clock import TrainingClock
from training.compilation import compile_or_record, try_to_compile
from training.evaluation import evaluate, pairs_row
from training.health_checks import (
    PLATEAU_ADVICE,
    UnsavedError,
    check_for_divergence,
    check_for_leak,
    check_for_skipped_steps,
    is_near_unigram,
    is_on_plateau,
)
from training.optimizers import learning_rate_of, set_learning_rate, weight_norm
from training.samples import sample
from training.schedule import Schedule, Stage, stage_at
from training.state import state_of
from training.step import StepSums, TrainingStep

STEPS_BETWEEN_CHECKS = 64  # for skipped steps, where looking waits for the device
SECONDS_FOR_REFERENCES = 30.0  # at the end of a run that was shorter than counting takes


class Trainer:
    """Trains a model and writes the run's files."""

    def __init__(
        self,
        step: TrainingStep,
        schedule: Schedule,
        validation: ValidationSet,
        vocabulary: Vocabulary,
        *,
        pairs_objective: str,
        validation_pairs: WindowBatch | None,
        corpus: str,
        prompts: Sequence[str],
        references: References,
        compile: bool,
    ):
        self.training_step = step
        self.model = step.model
        self.schedule = schedule
        self.validation = validation
        self.vocabulary = vocabulary
        self.pairs_objective = pairs_objective
        self.validation_pairs = validation_pairs
        self.corpus = corpus
        self.prompts = prompts
        self.references = references
        self.compile = compile
        self.device = validation.windows.device
        self.clock = TrainingClock(self.device)
        self.step = 0
        self.chars = 0
        self.n_evaluations = 0
        self.best_loss = float("inf")
        self.has_compared: bool | None = None  # None: not even begun
        self.has_warned = False
        self.knobs = Knobs()
        self.wanted_knobs: Mapping[str, Any] | None = None  # the last that were asked for
        self.is_changed_by_hand = False
        self.wall_seconds = 0.0
        self.unwritten: list[tuple[Callable[[dict[str, Any]], None], dict[str, Any]]] = []  # while the disk is full
        self._begin_interval()

    def train(self, run: RunFolder, callbacks: Callbacks, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Train until the budget is spent or `is_stopped`; evaluate, sample and save on the way.

        Raises HealthCheckError where training on makes no sense.
        """
        began, last_saved = time.monotonic() - self.wall_seconds, time.monotonic()
        self._compare(run, callbacks)
        if self.compile and self.progress() < 1:
            try_to_compile(self.training_step, self.schedule.stages, callbacks.says)
            self._compare(run, callbacks)
        self.model.train()
        self.clock.start()
        progress = self.progress()
        while progress < 1 and not is_stopped():
            self._turn_knobs(run, callbacks)
            stage = self._stage(progress)
            if not self.training_step.is_ready_for(stage):
                with self.clock.stopped():
                    compile_or_record(self.training_step, stage, callbacks.says)
            factor = self.schedule.learning_rate_factor(progress) * self.knobs.learning_rate_factor
            set_learning_rate(self.training_step.optimizers, factor)
            for total, value in zip(self.sums, self.training_step(stage, progress), strict=True):
                total += value
            self.step += 1
            self.chars += self.training_step.chars_per_step
            if not self.training_step.reading_waits or self.step % STEPS_BETWEEN_CHECKS == 0:
                check_for_skipped_steps(int(self.training_step.skipped_in_a_row), self.step, stage.seq_len)

            progress = self.progress()
            callbacks.progressed(progress)
            if self.schedule.evaluations_due(progress) > self.n_evaluations:
                with self.clock.stopped():
                    self.wall_seconds = time.monotonic() - began
                    self._evaluate(run, callbacks, stage, progress)
            if time.monotonic() - last_saved > self.schedule.seconds_per_checkpoint:
                with self.clock.stopped():
                    self.wall_seconds = time.monotonic() - began
                    self._save_last(run, callbacks)
                last_saved = time.monotonic()
        self.clock.stop()
        self.wall_seconds = time.monotonic() - began
        if not self._save_last(run, callbacks):
            raise UnsavedError(f"the last weights could not be saved: make room for {run.checkpoints}")
        if self.progress() >= 1:
            self._compare(run, callbacks, wait_seconds=SECONDS_FOR_REFERENCES)
        with reporting_os_errors(callbacks.says, run.curves_path.name):
            save_curves(run.curves_path, run.metrics(), self.references.lines, f"{self.corpus}, {run.path.name}")

    def _save_last(self, run: RunFolder, callbacks: Callbacks) -> bool:
        """Save what the run can go on from; returns whether that was possible."""
        with reporting_os_errors(callbacks.says, "the checkpoint; the one before stays, and it is tried again"):
            self._write_down()
            save_last(run.checkpoints, self.model, state_of(self, run))
            return True
        return False

    def _compare(self, run: RunFolder, callbacks: Callbacks, wait_seconds: float = 0.0) -> None:
        """Say what the losses are to be compared with: once at the beginning, and once when all of it is known."""
        complete = self.references.is_complete(wait_seconds)
        if complete == self.has_compared:
            return
        lines = ", ".join(f"{name} {loss:.2f}" for name, loss in self.references.lines.items())
        meaning = "a model above counting has learnt less than counting" if complete else "counting is on its way"
        callbacks.says(f"reference losses: {lines}: {meaning}")
        self.has_compared = complete
        with reporting_os_errors(callbacks.says, run.reference_lines_path.name):
            run.save_reference_lines(self.references.lines)

    def _append(self, append: Callable[[dict[str, Any]], None], content: dict[str, Any], callbacks: Callbacks) -> None:
        """Add to one of the run's files, now or, where the disk is full, when there is room."""
        self.unwritten.append((append, content))
        with reporting_os_errors(callbacks.says, "a row; it is kept, and it is tried again"):
            self._write_down()

    def _write_down(self) -> None:
        """Add to the run's files what is not there yet. Raises OSError."""
        while self.unwritten:
            append, content = self.unwritten[0]
            append(content)
            del self.unwritten[0]

    def _turn_knobs(self, run: RunFolder, callbacks: Callbacks) -> None:
        """Change what someone wants changed; say so, and write it down as an event of the run."""
        wanted = callbacks.wanted_knobs()
        if wanted is None or wanted == self.wanted_knobs:
            return
        self.wanted_knobs = wanted
        try:
            knobs = knobs_of(wanted, [stage.masking_prob for stage in self.schedule.stages])
        except KnobError as error:
            callbacks.says(f"not changed: {error}")
            return
        if knobs != self.knobs:
            event = {"event": "changed by hand", "step": self.step, "chars": self.chars, "seconds": self.clock.seconds}
            event |= {"before": self.knobs.as_dict(), "after": knobs.as_dict()}
            self._append(run.append_event, event, callbacks)
            callbacks.says(f"changed by hand at step {self.step:,}: {knobs}")
            self.knobs, self.is_changed_by_hand = knobs, True

    def _stage(self, progress: float) -> Stage:
        stage = stage_at(self.schedule.stages, progress)
        return stage if self.knobs.masking_prob is None else replace(stage, masking_prob=self.knobs.masking_prob)

    def _begin_interval(self) -> None:
        """Start the sums over the steps up to the next evaluation. They stay on the device until then."""
        self.sums = StepSums.zeros(self.device)
        self.chars_at_evaluation = self.chars
        self.seconds_at_evaluation = self.clock.seconds

    def progress(self) -> float:
        """The share of the budget that is spent; 1 or more ends the run."""
        return self.schedule.budget.progress(step=self.step, chars=self.chars, seconds=self.clock.seconds)

    def _evaluate(self, run: RunFolder, callbacks: Callbacks, stage: Stage, progress: float) -> None:
        self.n_evaluations = self.schedule.evaluations_due(progress)
        check_for_skipped_steps(int(self.training_step.skipped_in_a_row), self.step, stage.seq_len)
        evaluation = evaluate(self.model, self.validation, mask_token=self.vocabulary.mask_token, seq_len=stage.seq_len)
        loss_sum, n_correct, n_labels, grad_norm, *pair_sums = (float(total) for total in self.sums)
        n_labels = n_labels or math.nan  # where every step was skipped
        seconds = self.clock.seconds
        chars = self.chars - self.chars_at_evaluation
        row: dict[str, Any] = {
            "step": self.step,
            "chars": self.chars,
            "seconds": round(seconds, 3),
            "wall_seconds": round(self.wall_seconds, 3),
            "corpus": self.corpus,
            "seq_len": stage.seq_len,
            "learning_rate": learning_rate_of(self.training_step.optimizers),
            "masking_prob": stage.masking_prob,
            "loss.train": loss_sum / n_labels,
            "accuracy.train": n_correct / n_labels,
            "loss.valid": evaluation.loss,
            "loss.valid_stderr": evaluation.loss_stderr,
            "loss.valid_at_seq_len": evaluation.loss_at_seq_len,
            "accuracy.valid": evaluation.accuracy,
            "grad_norm": grad_norm * self.training_step.chars_per_step / chars,
            "weight_norm": weight_norm(self.model),
            "chars_per_second": round(chars / (seconds - self.seconds_at_evaluation), 1),
        }
        if self.is_changed_by_hand:
            row |= {"changed_by_hand": True, "learning_rate_factor": self.knobs.learning_rate_factor}
        if self.validation_pairs is not None:
            row |= pairs_row(self.model, self.validation_pairs, self.pairs_objective, *pair_sums)
        check_for_divergence(row["loss.train"], row["loss.valid"], self.step, stage.seq_len)
        floor = self.references.floor()
        self._compare(run, callbacks)
        if floor is not None:
            floor_loss = self.references.lines["floor"]
            row |= {"floor.valid": floor_loss, "excess": evaluation.loss - floor_loss}
        self._begin_interval()
        self._append(run.append_metrics, row, callbacks)
        callbacks.evaluated(row)
        if floor is not None:
            check_for_leak(evaluation.window_losses, floor)
        unigram = self.references.lines["unigram"]
        if not self.has_warned and is_near_unigram(row, unigram) and is_on_plateau(run.metrics(), unigram):
            self.has_warned = True
            callbacks.says(PLATEAU_ADVICE)
        if evaluation.loss < self.best_loss:
            with reporting_os_errors(callbacks.says, "the best weights"):
                save_weights(run.checkpoints / "best.safetensors", self.model)
                save_state(run.checkpoints / "best.pt", {"step": self.step, "loss.valid": evaluation.loss})
                self.best_loss = evaluation.loss
        if self.schedule.is_sample_due(self.n_evaluations):
            callbacks.sampled(sample(self.model, self.prompts, self.vocabulary, stage.masking_prob, self.device))
