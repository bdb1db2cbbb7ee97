"""Callbacks of the training loop: progress, evaluations, samples, knobs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import nn

from data.masking import n_masked_in
from data.vocabulary import Vocabulary
from runs.knobs import KnobError, Knobs, knobs_of
from training.schedule import Stage

SEED = 0  # masks the same characters every time, so that samples can be compared


@dataclass(frozen=True)
class Guess:
    """A part of a sample: a character or more visible to the model, or a token that was masked and guessed."""

    truth: str
    guess: str | None = None  # None: it was visible

    @property
    def is_correct(self) -> bool:
        return self.guess == self.truth


class Callbacks(Protocol):
    """Callbacks of the training loop; `training.tracking` implements them."""

    def says(self, line: str) -> None: ...
    def progressed(self, progress: float) -> None: ...
    def evaluated(self, row: Mapping[str, Any]) -> None: ...
    def sampled(self, samples: Sequence[Sequence[Guess]]) -> None: ...
    def wanted_knobs(self) -> Mapping[str, Any] | None: ...


class Silent:
    """Callbacks of the processes that do not talk to the user: all but the first."""

    def says(self, line: str) -> None:
        pass

    def progressed(self, progress: float) -> None:
        pass

    def evaluated(self, row: Mapping[str, Any]) -> None:
        pass

    def sampled(self, samples: Sequence[Sequence[Guess]]) -> None:
        pass

    def wanted_knobs(self) -> Mapping[str, Any] | None:
        return None


class KnobPanel:
    """The values of the knobs during training."""

    def __init__(self, rates: Sequence[float]):
        """`rates` are the masking rates of the stages, which a user can choose from."""
        self.rates = rates
        self.knobs = Knobs()
        self.requested: Mapping[str, Any] | None = None  # the last request
        self.is_changed_by_hand = False

    def apply(
        self,
        requested: Mapping[str, Any] | None,
        report: Callable[[str], None],
        position: Callable[[], Mapping[str, Any]],
    ) -> dict[str, Any] | None:
        """Apply a new request; returns the event to record, or None. `position` gives the run's step and time."""
        if requested is None or requested == self.requested:
            return None
        self.requested = requested
        try:
            knobs = knobs_of(requested, self.rates)
        except KnobError as error:
            report(f"not changed: {error}")
            return None
        if knobs == self.knobs:
            return None
        event = {"event": "changed by hand", **position(), "before": self.knobs.as_dict(), "after": knobs.as_dict()}
        report(f"changed by hand at step {event['step']:,}: {knobs}")
        self.knobs, self.is_changed_by_hand = knobs, True
        return event

    def applied_to(self, stage: Stage) -> Stage:
        """The stage with the masking rate that a user has set, if any."""
        rate = self.knobs.masking_prob
        return stage if rate is None else replace(stage, masking_prob=rate)

    def row(self) -> dict[str, Any]:
        """The entries of a metrics row, empty if no user has changed a knob."""
        if not self.is_changed_by_hand:
            return {}
        return {"changed_by_hand": True, "learning_rate_factor": self.knobs.learning_rate_factor}

    def state_dict(self) -> dict[str, Any]:
        return {"knobs": self.knobs.as_dict(), "is_changed_by_hand": self.is_changed_by_hand}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.knobs, self.requested = knobs_of(state["knobs"], self.rates), state["knobs"]
        self.is_changed_by_hand = state["is_changed_by_hand"]


@torch.no_grad()
def sample(
    model: nn.Module, prompts: Sequence[str], vocabulary: Vocabulary, masking_prob: float, device: torch.device
) -> list[list[Guess]]:
    """Replace a share of every prompt's tokens by `[MASK]` and let the model guess them.

    Dropout is off, and the RNG states of training do not change. Raises ValueError for a prompt with characters that
    the vocabulary does not have.
    """
    generator = torch.Generator().manual_seed(SEED)
    was_training = model.training
    model.eval()
    samples = []
    for prompt in prompts:
        ids = vocabulary.encode(prompt)
        order = torch.rand(len(ids), generator=generator).argsort()
        order = order[ids[order] < vocabulary.n_ordinary]  # [UNK] is no target
        masked = order[: n_masked_in(len(ids), masking_prob)].sort().values
        inputs = ids.index_fill(0, masked, vocabulary.mask_token)
        logits = model(inputs[None].to(device), masked.to(device))
        guesses = logits[:, : vocabulary.n_ordinary].argmax(-1).cpu()
        guess_at = {int(i): vocabulary.decode([guess]) for i, guess in zip(masked, guesses, strict=True)}
        parts = prompt if vocabulary.is_characters else [vocabulary.decode([i]) for i in ids.tolist()]
        samples.append([Guess(truth, guess_at.get(i)) for i, truth in enumerate(parts)])
    model.train(was_training)
    return samples
