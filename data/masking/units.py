"""Units that a rule cuts once, and those that change from call to call: spans, mixtures, weights
that follow losses."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch

from data.masking.sampling import unit_begins
from data.masking.segmenters import Segmenter, Units

RARELY = 1e-3  # the least weight of a unit that is only rarely selected: a weight of 0 means never
RATE = 0.05  # how far a running mean moves towards the losses of one batch
# cuts a text into pieces; their weights, or all 1
Rule = Callable[[str], tuple[list[str], Sequence[float] | None]]


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
        unit_of = torch.repeat_interleave(
            torch.arange(len(pieces), dtype=torch.int32), lengths
        )
        weights = [1.0] * len(pieces) if weights is None else weights
        return cls(unit_of, torch.tensor(weights, dtype=torch.float32), rule)

    def __call__(
        self, offsets: torch.Tensor, generator: torch.Generator, progress: float
    ) -> Units:
        units = self.unit_of[offsets]
        return units, self.weights[units]


@dataclass
class Spans(Segmenter):
    """Spans that are cut anew in every window (SpanBERT, Joshi et al. 2020).

    Lengths count units of `base`, words or characters. They follow the geometric distribution P(l)
    ~ p (1 - p)^(l - 1) up to `longest`; the mean is 3.80 for p = 0.2 and 10. The spans go around
    the window as around a circle, from a random unit on, so spans of characters hide every column
    equally often.
    """

    base: Segmenter
    p: float = 0.2
    longest: int = 10
    allows_static_masks: ClassVar[bool] = False

    def lengths(
        self, shape: tuple[int, ...], generator: torch.Generator
    ) -> torch.Tensor:
        """Independent draws of span lengths."""
        chances = self.p * (1 - self.p) ** torch.arange(
            self.longest, dtype=torch.float32, device=generator.device
        )
        cumulative = chances.cumsum(0) / chances.sum()
        draws = torch.rand(shape, generator=generator, device=generator.device)
        return 1 + torch.searchsorted(cumulative, draws, right=True).clamp(
            max=self.longest - 1
        )

    def __call__(
        self, offsets: torch.Tensor, generator: torch.Generator, progress: float
    ) -> Units:
        units, weights = self.base(offsets, generator, progress)
        # of the base unit in its window, from 0
        number = unit_begins(units).cumsum(1) - 1
        count = number[:, -1:] + 1
        begin = (
            torch.rand(count.shape, generator=generator, device=offsets.device) * count
        ).long()
        # enough spans for every window
        ends = self.lengths(tuple(offsets.shape), generator).cumsum(1)
        return torch.searchsorted(ends, (number + begin) % count, right=True), weights


@dataclass
class AdaptiveUnits(Segmenter):
    """Units weighted by the running mean of the model's loss on their type, in nats per character,
    from 1 on. The means are updated on the device, without synchronization."""

    units: CorpusUnits
    type_of: torch.Tensor  # [n_units] int32, units of one type share a mean
    means: torch.Tensor  # [n_types] float32
    allows_static_masks: ClassVar[bool] = False

    def __call__(
        self, offsets: torch.Tensor, generator: torch.Generator, progress: float
    ) -> Units:
        units, _ = self.units(offsets, generator, progress)
        return units, self.means.clamp(min=RARELY)[self.type_of[units]]

    def observe(self, offsets: torch.Tensor, losses: torch.Tensor) -> None:
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


@dataclass
class Mixture(Segmenter):
    """Masks each window by one of several strategies, whose shares may change with the training's
    progress.

    `rows` are (until, shares by strategy), read like the stages: a row holds while progress <
    until.
    """

    segmenters: Mapping[str, Segmenter]
    rows: Sequence[tuple[float, Mapping[str, float]]]
    allows_static_masks: ClassVar[bool] = False

    def parts(self) -> Mapping[str, Segmenter]:
        return self.segmenters

    def shares(self, progress: float) -> list[float]:
        """The share of each strategy, in the order of `segmenters`; they sum to 1."""
        row = next(
            (shares for until, shares in self.rows if progress < until),
            self.rows[-1][1],
        )
        total = sum(row.values())
        return [row.get(name, 0.0) / total for name in self.segmenters]

    def __call__(
        self, offsets: torch.Tensor, generator: torch.Generator, progress: float
    ) -> Units:
        shares = (
            torch.tensor(self.shares(progress))
            .cumsum(0)
            .to(offsets.device, non_blocking=True)
        )
        draws = torch.rand(len(offsets), generator=generator, device=offsets.device)
        chosen = torch.searchsorted(shares, draws, right=True).clamp(
            max=len(self.segmenters) - 1
        )
        drawn = (
            segmenter(offsets, generator, progress)
            for segmenter in self.segmenters.values()
        )
        units, weights = zip(*drawn, strict=True)
        windows = torch.arange(len(offsets), device=offsets.device)
        return torch.stack([u.long() for u in units])[chosen, windows], torch.stack(
            weights
        )[chosen, windows]
