"""Several strategies at once: each window is masked by one of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from data.masking.segmenters import Segmenter


@dataclass
class Mixture:
    """Draws a strategy for every window, with shares that may change with the training's progress.

    `rows` are (until, shares a strategy), read like the stages: a row holds while progress < until.
    """

    cuts: Mapping[str, Segmenter]
    rows: Sequence[tuple[float, Mapping[str, float]]]
    progress: float = 0.0

    def shares(self) -> list[float]:
        """The share of each strategy of `cuts` now; they sum to 1."""
        row = next((shares for until, shares in self.rows if self.progress < until), self.rows[-1][1])
        total = sum(row.values())
        return [row.get(name, 0.0) / total for name in self.cuts]

    def __call__(self, offsets: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        shares = torch.tensor(self.shares()).cumsum(0).to(offsets.device, non_blocking=True)
        draws = torch.rand(len(offsets), generator=generator, device=offsets.device)
        chosen = torch.searchsorted(shares, draws, right=True).clamp(max=len(self.cuts) - 1)
        units, weights = zip(*(cut(offsets, generator) for cut in self.cuts.values()), strict=True)
        rows = torch.arange(len(offsets), device=offsets.device)
        return torch.stack([u.long() for u in units])[chosen, rows], torch.stack(weights)[chosen, rows]
