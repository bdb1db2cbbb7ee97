"""Segmenters cut windows into units, the characters that are hidden together, and give each unit a
weight."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import torch

# the unit of each character and its weight, both [batch, seq_len]
Units = tuple[torch.Tensor, torch.Tensor]


class Segmenter:
    """Base class of all ways to mask.

    A subclass implements `__call__`. Tensors and segmenters that it keeps as attributes move with
    it. If it learns, it also overrides `observe`, `state_dict` and `load_state_dict`.
    """

    # False if units or weights change between calls with equal offsets
    allows_static_masks: ClassVar[bool] = True

    def __call__(
        self, offsets: torch.Tensor, generator: torch.Generator, progress: float
    ) -> Units:
        """The unit of each character, and the weight of that unit, both `[batch, seq_len]`.

        `offsets` `[batch, seq_len]` are the characters' offsets in the training text, `progress` is
        the share of the training budget that is spent, and all random draws come from `generator`.
        Neighbors with the same number are one unit, and so are the pieces at the two ends of a
        window. A weight of 0 or less means never.
        """
        raise NotImplementedError

    @property
    def learns(self) -> bool:
        """Whether `observe` changes units or weights."""
        overrides = type(self).observe is not Segmenter.observe
        return overrides or any(part.learns for part in self.parts().values())

    def parts(self) -> Mapping[str, "Segmenter"]:
        """The segmenters that this one is made of; by default those among its attributes."""
        return {
            name: value
            for name, value in vars(self).items()
            if isinstance(value, Segmenter)
        }

    def to(self, device: torch.device) -> Self:
        """Move to `device`, in place."""
        for name, value in list(vars(self).items()):
            if isinstance(value, torch.Tensor):
                setattr(self, name, value.to(device))
        for part in self.parts().values():
            part.to(device)
        return self

    def observe(self, offsets: torch.Tensor, losses: torch.Tensor) -> None:
        """Learn from the model's losses, in nats, on the masked characters at `offsets`; both
        `[n_masked]`."""
        for part in self.parts().values():
            part.observe(offsets, losses)

    def state_dict(self) -> dict[str, Any]:
        """Everything that was learned, for checkpoints."""
        return {name: part.state_dict() for name, part in self.parts().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, part in self.parts().items():
            part.load_state_dict(state[name])


class Characters(Segmenter):
    """Single characters of equal weight."""

    def __call__(
        self, offsets: torch.Tensor, generator: torch.Generator, progress: float
    ) -> Units:
        return offsets, torch.ones(offsets.shape, device=offsets.device)


Strategy = Callable[[str], Segmenter]  # from the training text
STRATEGIES: dict[str, Strategy] = {}


def strategy(function: Strategy) -> Strategy:
    """Register a strategy under its function's name."""
    STRATEGIES[function.__name__] = function
    return function


@strategy
def random(text: str) -> Segmenter:
    """Single characters (BERT, Devlin et al. 2018): w = 1."""
    return Characters()
