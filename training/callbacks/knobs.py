"""Applies the values of the knobs that a user has requested on the dashboard."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from runs.errors import InputError
from runs.knobs import Knobs, knobs_of
from training.callbacks.callback import Callback
from training.evaluation import Evaluation
from training.schedule import Stage


class KnobPanel(Callback):
    """Applies the values of the knobs that a user has requested."""

    name = "knobs"

    def __init__(self) -> None:
        self.knobs = Knobs()
        self.requested: Mapping[str, Any] | None = None  # the last request
        self.is_changed_by_hand = False

    def adjust(self, trainer: Any, stage: Stage, factor: float) -> tuple[Stage, float]:
        requested = self.request(trainer)
        if requested is not None and requested != self.requested:
            self.requested = requested
            try:
                self._turn(trainer, knobs_of(requested))
            except InputError as error:
                trainer.report(f"not changed: {error}")
        rate = self.knobs.masking_prob
        return stage if rate is None else replace(
            stage, masking_prob=rate
        ), factor * self.knobs.learning_rate_factor

    def request(self, trainer: Any) -> Mapping[str, Any] | None:
        """The values that a user wants, if any."""
        wanted = (callback.wanted_knobs() for callback in trainer.callbacks)
        return next((values for values in wanted if values is not None), None)

    def _turn(self, trainer: Any, knobs: Knobs) -> None:
        if knobs == self.knobs:
            return
        before, after = asdict(self.knobs), asdict(knobs)
        self.knobs, self.is_changed_by_hand = knobs, True
        trainer.report(f"changed by hand at step {trainer.step:,}: {knobs}")
        event = {"event": "changed by hand", **trainer.position(), "before": before, "after": after}
        trainer.call("changed", event)

    def measured(self, trainer: Any, row: dict[str, Any], evaluation: Evaluation) -> None:
        if self.is_changed_by_hand:
            row |= {
                "changed_by_hand": True,
                "learning_rate_factor": self.knobs.learning_rate_factor,
            }
            row["masking_prob"] = self.knobs.masking_prob or row["masking_prob"]

    def state_dict(self) -> dict[str, Any]:
        return {"knobs": asdict(self.knobs), "is_changed_by_hand": self.is_changed_by_hand}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.knobs, self.requested = knobs_of(state["knobs"]), state["knobs"]
        self.is_changed_by_hand = state["is_changed_by_hand"]
