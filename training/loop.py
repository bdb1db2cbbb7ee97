"""The training loop, from top to bottom."""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from training.callbacks.callback import Callback
from training.clock import TrainingClock
from training.evaluation import Evaluator
from training.objective import Sums
from training.optimizers import learning_rate_of, set_learning_rate
from training.schedule import Schedule, Stage, mean_masking_prob, stage_at
from training.step import TrainingStep

# copied into checkpoints
SAVED = ("step", "chars", "wall_seconds", "n_evaluations", "best_loss", "evaluated_at")


class Now(NamedTuple):
    """The values that depend on a clock or a signal. Several processes all use the values of the
    first one."""

    progress: float  # the share of the budget that is spent
    must_stop: bool
    must_save: bool


class Trainer:
    """Trains and evaluates a model. `distributed.parallel` has the subclass for several processes."""

    def __init__(
        self,
        training_step: TrainingStep,
        schedule: Schedule,
        evaluator: Evaluator,
        clock: TrainingClock,
    ):
        self.training_step = training_step
        self.model = training_step.update.model
        self.optimizers = training_step.update.optimizers
        self.schedule = schedule
        self.evaluator = evaluator
        self.clock = clock
        self.callbacks: list[Callback] = []
        self.must_stop = False  # a signal sets it

        # so far, also of the earlier parts of a resumed run
        self.step = 0
        self.chars = 0
        self.n_evaluations = 0
        # with compilation, evaluations and saves; `clock.seconds` are those of training alone
        self.wall_seconds = 0.0
        self.best_loss = float("inf")
        # the position of the last evaluation, and the sums of the steps since then
        self.evaluated_at = self.position()
        self.sums: Sums = {}

    def train(self) -> None:
        """Train until the last evaluation, at the end of the budget, or until a signal sets
        `must_stop`."""
        self.began = time.monotonic() - self.wall_seconds
        self.last_save = time.monotonic()
        for callback in self.callbacks:
            callback.begin(self)  # one of them compiles the step
        self.model.train()
        self.clock.start()
        now = self.now()

        while self.n_evaluations < self.schedule.evaluations and not now.must_stop:
            # find the window length, the masking rate and the learning rate of this step
            stage = stage_at(self.schedule.stages, now.progress, self.step)
            lr_share = self.schedule.learning_rate_at(now.progress)  # of the peak
            for callback in self.callbacks:
                # the dashboard's knobs change them, for example
                stage, lr_share = callback.adjust(self, stage, lr_share)
            set_learning_rate(self.optimizers, lr_share)

            # draw batches, and change the weights; with a budget of 0 steps, they stay
            if now.progress < 1:
                self.take_step(stage, now.progress)

            # evaluate and save, if that is due
            now = self.now()
            if self.schedule.evaluations_due(now.progress) > self.n_evaluations:
                with self.clock.stopped():
                    self.evaluate(stage, now.progress)
                now = self.now()  # a signal may have arrived meanwhile
            if now.must_save:
                with self.clock.stopped():
                    self.save()

        self.clock.stop()
        self.save(is_last=True)
        for callback in self.callbacks:
            callback.end(self)

    def take_step(self, stage: Stage, progress: float) -> None:
        """Change the weights once; only evaluations read the sums."""
        sums = self.training_step(stage, progress)
        for name, value in sums.items():
            self.sums[name] = self.sums.get(name, 0) + value
        self.step += 1
        self.chars += self.training_step.chars_per_step
        for callback in self.callbacks:
            callback.stepped(self, stage)

    def evaluate(self, stage: Stage, progress: float) -> None:
        """Evaluate the model. Callbacks add to the row for metrics.jsonl (`measured`), then record
        it (`evaluated`)."""
        # If a long step makes several due, this one counts for all of them.
        self.n_evaluations = self.schedule.evaluations_due(progress)
        self.wall_seconds = time.monotonic() - self.began
        facts = {
            **self.position(),
            "wall_seconds": round(self.wall_seconds, 3),
            "seq_len": stage.seq_len,
            "masking_prob": mean_masking_prob(self.schedule.stages, stage),
            "learning_rate": learning_rate_of(self.optimizers),
        }
        row, evaluation = self.evaluator.row(facts, self.evaluated_at, self.sums)
        for callback in self.callbacks:
            callback.measured(self, row, evaluation)

        # a callback adds loss.bound, over all masking rates, if the steps alternate between several
        loss = row.get("loss.bound", row["loss.valid"])
        best_weights = self.model.state_dict() if loss < self.best_loss else None
        self.best_loss = min(self.best_loss, loss)
        for callback in self.callbacks:
            callback.evaluated(self, row, best_weights)
        self.evaluated_at = self.position()
        self.sums = Sums()

    def save(self, is_last: bool = False) -> None:
        """Have a callback write a checkpoint (`Recorder`). All processes must call it together."""
        self.wall_seconds = time.monotonic() - self.began
        weights = self.model.state_dict()
        state = self.state_dict()
        for callback in self.callbacks:
            callback.save(self, weights, state, is_last)
        self.last_save = time.monotonic()

    def report(self, line: str) -> None:
        for callback in self.callbacks:
            callback.reported(self, line)

    def now(self) -> Now:
        must_save = (
            time.monotonic() - self.last_save > self.schedule.seconds_per_checkpoint
        )
        return Now(self.progress(), self.must_stop, must_save)

    def progress(self) -> float:
        return self.schedule.progress(
            step=self.step, chars=self.chars, seconds=self.clock.seconds
        )

    def position(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "chars": self.chars,
            "seconds": round(self.clock.seconds, 3),
        }

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        self.model.load_state_dict(weights)

    def state_dict(self) -> dict[str, Any]:
        """All state that later steps depend on, except the weights. `training.resume` restores it."""
        callbacks = {
            each.name: each.state_dict() for each in self.callbacks if each.name
        }
        return {
            **{name: getattr(self, name) for name in SAVED},
            "seconds": self.clock.seconds,
            "sums": self.sums,
            "callbacks": callbacks,
            "training_step": self.training_step.state_dict(),
        }
