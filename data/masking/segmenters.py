"""One mechanism for every way to mask: a text is cut into units, each unit has a weight, and a budget is spent.

Units are drawn without replacement in proportion to their weights, by an exponential sampling_order (Efraimidis and Spirakis
2006, Gumbel top-k): unit i finishes at time E_i / w_i with E_i ~ Exponential(1), and the first to finish are taken,
whole, until the budget of characters is spent; of the last one only its first characters are. A unit that has begun
before the window counts there like any other, so where units are long against the budget, the beginning of a window
is hidden more often than the rest.
"""

from dataclasses import dataclass
from typing import Protocol

import torch

LEAD = 64  # units between where spans begin to be drawn and the window
SMALLEST_DRAW = 2**-25  # below every draw but 0, which would take for ever to finish


class Segmenter(Protocol):
    """Cuts windows into units. A masking strategy is one of these."""

    def __call__(self, offsets: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Which unit each character belongs to, and the weight of that unit, both `[batch, seq_len]`.

        `offsets` `[batch, seq_len]` are the characters' offsets in the training text. Neighbours with the same number
        are one unit; numbers need not be consecutive, and mean nothing from one window to another.
        """


@dataclass
class Characters:
    """Every character is a unit of its own, and all weigh the same."""

    def __call__(self, offsets: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        return offsets, torch.ones(offsets.shape, device=offsets.device)


@dataclass
class CorpusUnits:
    """Units that are cut once for the whole text: 4 bytes a character and 4 bytes a unit."""

    unit_of: torch.Tensor  # [n_chars] int32, the unit of each character, never falling
    weights: torch.Tensor  # [n_units] float32

    def to(self, device: torch.device) -> "CorpusUnits":
        return CorpusUnits(self.unit_of.to(device), self.weights.to(device))

    def __call__(self, offsets: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        units = self.unit_of[offsets]
        return units, self.weights[units]


@dataclass
class Spans:
    """Spans that are cut anew in every window (SpanBERT, Joshi et al. 2020).

    Lengths follow the geometric distribution P(l) ~ p (1 - p)^(l - 1), cut off at `longest` and renormalised: with
    p = 0.2 and 10 the mean is 3.80. They count in the units of `base`: words, or characters.
    """

    base: Segmenter
    p: float = 0.2
    longest: int = 10

    def lengths(self, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
        """Independent draws of span lengths."""
        chances = self.p * (1 - self.p) ** torch.arange(self.longest, dtype=torch.float32, device=generator.device)
        cumulative = chances.cumsum(0) / chances.sum()
        draws = torch.rand(shape, generator=generator, device=generator.device)
        return 1 + torch.searchsorted(cumulative, draws, right=True).clamp(max=self.longest - 1)

    def __call__(self, offsets: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        units, weights = self.base(offsets, generator)
        begins = torch.ones_like(units, dtype=torch.bool)
        begins[:, 1:] = units[:, 1:] != units[:, :-1]
        number = begins.cumsum(1) - 1  # of the base unit in its window, from 0
        batch, seq_len = offsets.shape
        ends = self.lengths((batch, seq_len + LEAD), generator).cumsum(1)  # spans enough for every window
        # The first span begins well before the window, so that spans begin in its first column as often as anywhere.
        return torch.searchsorted(ends, number + LEAD, right=True), weights


def sampling_order(
    units: torch.Tensor, weights: torch.Tensor, draws: torch.Tensor, eligible: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The order in which characters are taken: `[batch, seq_len]` columns, the first to be masked first.

    Also the finishing times in that order; infinite for what may not be masked, by its weight of 0 or because it is
    not `eligible`. `draws` `[batch, seq_len]` are uniform in [0, 1); the draw of a unit is that of its first character.
    """
    times = -draws.gather(1, first_columns(units)).clamp(min=SMALLEST_DRAW).log() / weights
    if eligible is not None:
        times = times.masked_fill(~eligible, torch.inf)
    # Stable: the characters of a unit finish together, and stay in order.
    finished = times.sort(dim=1, stable=True)
    return finished.indices, finished.values


def first_columns(units: torch.Tensor) -> torch.Tensor:
    """The column of each character's unit's first character in the window, `[batch, seq_len]`."""
    columns = torch.arange(units.shape[1], device=units.device).expand_as(units)
    begins = torch.ones_like(units, dtype=torch.bool)
    begins[:, 1:] = units[:, 1:] != units[:, :-1]
    return torch.where(begins, columns, 0).cummax(1).values
