"""Units that do not change: a rule cuts the whole text into them once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import torch

from data.masking.segmenters import Segmenter, Units

Rule = Callable[[str], tuple[list[str], Sequence[float] | None]]  # cuts a text into pieces; their weights, or all 1


@dataclass
class CorpusUnits(Segmenter):
    """Units that are cut once for the whole text: 4 bytes per character and 4 bytes per unit."""

    unit_of: torch.Tensor  # [n_chars] int32, non-decreasing
    weights: torch.Tensor  # [n_units] float32
    rule: Rule | None = None  # that cuts other texts in the same way

    @classmethod
    def by_rule(cls, rule: Rule, text: str) -> Self:
        """The pieces of a text by a rule that applies to other texts too."""
        pieces, weights = rule(text)
        lengths = torch.tensor([len(piece) for piece in pieces], dtype=torch.int64)
        unit_of = torch.repeat_interleave(torch.arange(len(pieces), dtype=torch.int32), lengths)
        weights = [1.0] * len(pieces) if weights is None else weights
        return cls(unit_of, torch.tensor(weights, dtype=torch.float32), rule)

    def __call__(self, offsets: torch.Tensor, generator: torch.Generator, progress: float) -> Units:
        units = self.unit_of[offsets]
        return units, self.weights[units]
