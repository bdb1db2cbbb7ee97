"""The hooks of the training loop, for objects that watch or steer a run."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from training.evaluation import Evaluation
from training.schedule import Stage

if TYPE_CHECKING:
    from training.callbacks.samples import Guess
    from training.loop import Trainer

Row = dict[str, Any]  # of metrics.jsonl
Weights = Mapping[str, Any]  # tensors by name


class Callback:
    """Does nothing; subclasses override what they need. `trainer` is the one that calls."""

    name = ""  # of the state in checkpoints; empty if there is none

    def begin(self, trainer: "Trainer") -> None:
        """Before the first step; the clock does not run yet."""

    def adjust(
        self, trainer: "Trainer", stage: Stage, lr_share: float
    ) -> tuple[Stage, float]:
        """Before each step: returns its stage, and its learning rate as a share of the peak,
        changed or not."""
        return stage, lr_share

    def stepped(self, trainer: "Trainer", stage: Stage) -> None:
        """After each step."""

    def measured(self, trainer: "Trainer", row: Row, evaluation: Evaluation) -> None:
        """After an evaluation: may add entries to its row of metrics.jsonl."""

    def evaluated(self, trainer: "Trainer", row: Row, best: Weights | None) -> None:
        """The whole row; `best` are the weights if they are the best so far."""

    def sampled(self, trainer: "Trainer", samples: Sequence[Sequence["Guess"]]) -> None:
        """Texts that the model has filled in."""

    def changed(self, trainer: "Trainer", event: Mapping[str, Any]) -> None:
        """A user has changed a knob."""

    def reported(self, trainer: "Trainer", line: str) -> None:
        """A line of text for the user."""

    def save(
        self, trainer: "Trainer", weights: Weights, state: dict[str, Any], is_last: bool
    ) -> None:
        """A checkpoint is due. An OSError ends the training."""

    def end(self, trainer: "Trainer") -> None:
        """After the last checkpoint."""

    def state_dict(self) -> Any:
        return None

    def load_state_dict(self, state: Any) -> None:
        pass
