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
        self.training_step, self.model = training_step, training_step.update.model
        self.schedule, self.evaluator, self.clock = schedule, evaluator, clock
        self.callbacks: list[Callback] = []
        self.step = self.chars = self.n_evaluations = 0  # so far
        self.began = self.last_save = self.wall_seconds = 0.0
        self.best_loss, self.must_stop = float("inf"), False
        # position of the last evaluation, and sums since then
        self.evaluated_at, self.sums = self.position(), Sums()

    def train(self) -> None:
        """Train until the last evaluation, at the end of the budget, or until a signal sets
        `must_stop`."""
        self.began = time.monotonic() - self.wall_seconds  # with the earlier parts of a resumed run
        self.last_save = time.monotonic()
        self.call("begin")  # torch.compile runs here, before the clock starts
        self.model.train()
        self.clock.start()
        now = self.now()
        while self.n_evaluations < self.schedule.evaluations and not now.must_stop:
            # window length and masking rate
            stage = stage_at(self.schedule.stages, now.progress, self.step)
            # the learning rate as a share of its peak
            factor = self.schedule.learning_rate_at(now.progress)
            for callback in self.callbacks:
                # by hand on the dashboard, for example
                stage, factor = callback.adjust(self, stage, factor)
            set_learning_rate(self.training_step.update.optimizers, factor)

            # of one step; `Evaluator.row` averages them
            sums = self.training_step(stage, now.progress)
            self.sums = {name: self.sums.get(name, 0) + value for name, value in sums.items()}
            self.step += 1
            self.chars += self.training_step.chars_per_step

            self.call("stepped", stage)
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
        self.call("end")

    def evaluate(self, stage: Stage, progress: float) -> None:
        """Evaluate the model. Callbacks add to the row for metrics.jsonl (`measured`), then record
        it (`evaluated`)."""
        self.n_evaluations, self.wall_seconds = (
            self.schedule.evaluations_due(progress),
            time.monotonic() - self.began,
        )
        facts = self.position() | {
            "wall_seconds": round(self.wall_seconds, 3),
            "seq_len": stage.seq_len,
        }
        # a stage may alternate between rates
        facts["masking_prob"] = mean_rate(self.schedule.stages, stage)
        facts["learning_rate"] = learning_rate_of(self.training_step.update.optimizers)
        # runs on the validation set
        row, evaluation = self.evaluator.row(facts, self.evaluated_at, self.sums)
        self.call("measured", row, evaluation)
        # a callback adds it if masking rates alternate
        loss = row.get("loss.bound", row["loss.valid"])
        best = self.weights() if loss < self.best_loss else None
        self.best_loss = min(self.best_loss, loss)
        self.call("evaluated", row, best)
        self.evaluated_at, self.sums = self.position(), Sums()

    def save(self, is_last: bool = False) -> None:
        """Have a callback write a checkpoint (`training.callbacks.recorder`). All processes must call
        it together."""
        self.wall_seconds = time.monotonic() - self.began
        self.call("save", self.weights(), self.state_dict(), is_last)
        self.last_save = time.monotonic()

    def call(self, hook: str, *arguments: Any) -> None:
        """Call a hook of all callbacks: see `training.callbacks.callback`."""
        for callback in self.callbacks:
            getattr(callback, hook)(self, *arguments)

    def report(self, line: str) -> None:
        self.call("reported", line)

    def now(self) -> Now:
        must_save = time.monotonic() - self.last_save > self.schedule.seconds_per_checkpoint
        return Now(self.progress(), self.must_stop, must_save)

    def progress(self) -> float:
        return self.schedule.progress(step=self.step, chars=self.chars, seconds=self.clock.seconds)

    def position(self) -> dict[str, Any]:
        return {"step": self.step, "chars": self.chars, "seconds": round(self.clock.seconds, 3)}

    def weights(self) -> dict[str, Any]:
        return self.model.state_dict()

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        self.model.load_state_dict(weights)

    def state_dict(self) -> dict[str, Any]:
        """All state that later steps depend on, except the weights. `training.resume` restores it."""
        return {name: getattr(self, name) for name in SAVED} | {
            "seconds": self.clock.seconds,
            "sums": self.sums,
            "callbacks": {
                callback.name: callback.state_dict() for callback in self.callbacks if callback.name
            },
            "training_step": self.training_step.state_dict(),
        }
