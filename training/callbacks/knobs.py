"""Applies the values of the knobs that a user has requested on the dashboard."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from runs.errors import InputError
from runs.knobs import Knobs, knobs_of
from training.callbacks.callback import Callback, Row
from training.evaluation import Evaluation
from training.loop import Trainer
from training.schedule import Stage

Request = Mapping[str, Any] | None


class KnobPanel(Callback):
    """Applies the values of the knobs that a user has requested."""

    name = "knobs"

    def __init__(self, wanted: Callable[[], Request] | None = None):
        """`wanted` returns the values that a user wants; only the first process knows them."""
        self.wanted = wanted
        self.knobs = Knobs()
        self.requested: Request = None  # the last request
        self.is_changed_by_hand = False

    def adjust(
        self, trainer: Trainer, stage: Stage, lr_share: float
    ) -> tuple[Stage, float]:
        requested = self.request(trainer)
        if requested is not None and requested != self.requested:
            self.requested = requested
            try:
                self._turn(trainer, knobs_of(requested))
            except InputError as error:
                trainer.report(f"not changed: {error}")

        if self.knobs.masking_prob is not None:
            stage = replace(stage, masking_prob=self.knobs.masking_prob)
        return stage, lr_share * self.knobs.learning_rate_factor

    def request(self, trainer: Trainer) -> Request:
        return self.wanted() if self.wanted else None

    def _turn(self, trainer: Trainer, knobs: Knobs) -> None:
        if knobs == self.knobs:
            return
        event = {
            "event": "changed by hand",
            **trainer.position(),
            "before": asdict(self.knobs),
            "after": asdict(knobs),
        }
        self.knobs = knobs
        self.is_changed_by_hand = True
        trainer.report(f"changed by hand at step {trainer.step:,}: {knobs}")
        for callback in trainer.callbacks:
            callback.changed(trainer, event)

    def measured(self, trainer: Trainer, row: Row, evaluation: Evaluation) -> None:
        if self.is_changed_by_hand:
            row["changed_by_hand"] = True
            row["learning_rate_factor"] = self.knobs.learning_rate_factor
            row["masking_prob"] = self.knobs.masking_prob or row["masking_prob"]

    def state_dict(self) -> dict[str, Any]:
        return {
            "knobs": asdict(self.knobs),
            "is_changed_by_hand": self.is_changed_by_hand,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.requested = state["knobs"]
        self.knobs = knobs_of(state["knobs"])
        self.is_changed_by_hand = state["is_changed_by_hand"]
