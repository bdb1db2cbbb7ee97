"""The hooks of the training loop, for objects that watch or steer a run."""

from collections.abc import Mapping, Sequence
from typing import Any


class Callback:
    """Does nothing; subclasses override what they need. `trainer` is the `training.loop.Trainer`
    that calls."""

    name = ""  # of the state in checkpoints; empty if there is none

    def begin(self, trainer: Any) -> None:
        """Before the first step; the clock does not run yet."""

    def adjust(self, trainer: Any, stage: Any, factor: float) -> tuple[Any, float]:
        """Before each step: returns its stage, and its learning rate as a share of the peak,
        changed or not."""
        return stage, factor

    def stepped(self, trainer: Any, stage: Any) -> None:
        """After each step."""

    def measured(self, trainer: Any, row: dict[str, Any], evaluation: Any) -> None:
        """After an evaluation: may add entries to its row of metrics.jsonl."""

    def evaluated(
        self, trainer: Any, row: Mapping[str, Any], best: Mapping[str, Any] | None
    ) -> None:
        """The whole row; `best` are the weights if they are the best so far."""

    def sampled(self, trainer: Any, samples: Sequence[Any]) -> None:
        """Texts that the model has filled in."""

    def changed(self, trainer: Any, event: Mapping[str, Any]) -> None:
        """A user has changed a knob."""

    def wanted_knobs(self) -> Mapping[str, Any] | None:
        """The knobs (masking rate and learning-rate factor) that a user has requested on the
        dashboard, if any."""
        return None

    def reported(self, trainer: Any, line: str) -> None:
        """A line of text for the user."""

    def save(
        self, trainer: Any, weights: Mapping[str, Any], state: dict[str, Any], is_last: bool
    ) -> None:
        """A checkpoint is due. An OSError ends the training."""

    def end(self, trainer: Any) -> None:
        """After the last checkpoint."""

    def state_dict(self) -> Any:
        return None

    def load_state_dict(self, state: Any) -> None:
        pass
