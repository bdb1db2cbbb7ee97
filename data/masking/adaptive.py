"""Masks that follow the model's own difficulties."""

from dataclasses import dataclass
from typing import Any

import torch

from data.masking.segmenters import CorpusUnits

RATE = 0.05  # how far the running mean moves towards the losses of one batch


@dataclass
class AdaptiveUnits:
    """Words by how hard the model finds them: w = the running mean of its loss on that word, in nats a character.

    All words begin alike. The means are updated on the device, without waiting for it.
    """

    units: CorpusUnits
    type_of: torch.Tensor  # [n_units] int32, units of one type share a mean
    means: torch.Tensor  # [n_types] float32

    def to(self, device: torch.device) -> "AdaptiveUnits":
        return AdaptiveUnits(self.units.to(device), self.type_of.to(device), self.means.to(device))

    def __call__(self, offsets: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        units, _ = self.units(offsets, generator)
        return units, self.means[self.type_of[units]]

    def observe(self, offsets: torch.Tensor, losses: torch.Tensor) -> None:
        """Learn from the losses `[n_masked]` of the characters at `offsets` `[n_masked]` of the text."""
        types = self.type_of[self.units.unit_of[offsets]]
        sums, counts = torch.zeros((2, *self.means.shape), device=self.means.device)
        sums.index_add_(0, types, losses.float())
        counts.index_add_(0, types, torch.ones_like(losses, dtype=torch.float32))
        moved = self.means.lerp(sums / counts.clamp(min=1), RATE)
        self.means = torch.where(counts > 0, moved, self.means)

    def state_dict(self) -> dict[str, Any]:
        return {"means": self.means}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.means = state["means"].to(self.means.device)
