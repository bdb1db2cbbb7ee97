"""The training loop, from top to bottom."""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from training.callbacks.callback import Callback
from training.clock import TrainingClock
from training.evaluation import Evaluator
from training.objective import Sums
from training.optimizers import learning_rate_of, set_learning_rate
from training.schedule import Schedule, Stage, mean_rate, stage_at
from training.step import TrainingStep

# copied into checkpoints
SAVED = ("step", "chars", "wall_seconds", "n_evaluations", "best_loss", "evaluated_at")


class Now(NamedTuple):
    """Values that depend on a clock or a signal. With several processes, all use those of the first
    one."""

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
        self.schedule = schedule
        self.evaluator = evaluator
        self.clock = clock
        self.callbacks: list[Callback] = []
        self.must_stop = False  # a signal sets it

        # so far, also of the earlier parts of a resumed run
        self.step = 0
        self.chars = 0
        self.n_evaluations = 0
        self.wall_seconds = 0.0
        self.best_loss = float("inf")
        # since the last evaluation
        self.evaluated_at = self.position()
        self.sums = Sums()

    def train(self) -> None:
        """Train until the last evaluation, at the end of the budget, or until a signal sets
        `must_stop`."""
        self.began = time.monotonic() - self.wall_seconds
        self.last_save = time.monotonic()
        for callback in self.callbacks:
            callback.begin(self)  # torch.compile runs here, before the clock starts
        self.model.train()
        self.clock.start()
        now = self.now()

        while self.n_evaluations < self.schedule.evaluations and not now.must_stop:
            # window length and masking rate, and the learning rate as a share of its peak
            stage = stage_at(self.schedule.stages, now.progress, self.step)
            factor = self.schedule.learning_rate_at(now.progress)
            for callback in self.callbacks:
                # by hand on the dashboard, for example
                stage, factor = callback.adjust(self, stage, factor)
            set_learning_rate(self.training_step.update.optimizers, factor)

            # draw batches, and change the weights
            sums = self.training_step(stage, now.progress)
            for name, value in sums.items():
                self.sums[name] = self.sums.get(name, 0) + value
            self.step += 1
            self.chars += self.training_step.chars_per_step
            for callback in self.callbacks:
                callback.stepped(self, stage)

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

    def evaluate(self, stage: Stage, progress: float) -> None:
        """Evaluate the model. Callbacks add to the row for metrics.jsonl (`measured`), then record
        it (`evaluated`)."""
        # after a long step several may be due, of which one is done
        self.n_evaluations = self.schedule.evaluations_due(progress)
        self.wall_seconds = time.monotonic() - self.began
        facts = {
            **self.position(),
            "wall_seconds": round(self.wall_seconds, 3),
            "seq_len": stage.seq_len,
            "masking_prob": mean_rate(
                self.schedule.stages, stage
            ),  # rates may alternate
            "learning_rate": learning_rate_of(self.training_step.update.optimizers),
        }
        row, evaluation = self.evaluator.row(facts, self.evaluated_at, self.sums)
        for callback in self.callbacks:
            callback.measured(self, row, evaluation)

        # the any-order bound, which a callback adds if masking rates alternate
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
