"""Strategies cut a text of characters into units. This applies their units to tokens that are not characters."""

from dataclasses import replace
from typing import Any

import torch

from data.masking.segmenters import AdaptiveUnits, Characters, CorpusUnits, Mixture, Segmenter, Spans, Units


def on_tokens(segmenter: Segmenter, offsets: torch.Tensor) -> Segmenter:
    """The segmenter for token i where `segmenter` is for character `offsets[i]`; `offsets` is `[n_tokens_of_text]`.

    A token has the unit and the weight of its character. Single characters become single tokens.
    """
    if isinstance(segmenter, Characters):
        return segmenter
    if isinstance(segmenter, CorpusUnits):
        return replace(segmenter, unit_of=segmenter.unit_of[offsets])
    if isinstance(segmenter, AdaptiveUnits):
        units = replace(segmenter.units, unit_of=segmenter.units.unit_of[offsets])
        return replace(segmenter, units=units)
    if isinstance(segmenter, Spans):
        return replace(segmenter, base=on_tokens(segmenter.base, offsets))
    if isinstance(segmenter, Mixture):
        parts = {name: on_tokens(part, offsets) for name, part in segmenter.segmenters.items()}
        return replace(segmenter, segmenters=parts)
    return OnTokens(segmenter, offsets)


class OnTokens(Segmenter):
    """Any other segmenter on tokens: it gets the offsets of their characters."""

    def __init__(self, base: Segmenter, offsets: torch.Tensor):
        self.base, self.char_of = base, offsets
        self.allows_static_masks = base.allows_static_masks  # type: ignore[misc]

    def __call__(self, offsets: torch.Tensor, generator: torch.Generator, progress: float) -> Units:
        return self.base(self.char_of[offsets], generator, progress)

    def observe(self, offsets: torch.Tensor, losses: torch.Tensor) -> None:
        self.base.observe(self.char_of[offsets], losses)

    @property
    def learns(self) -> bool:
        return self.base.learns

    def state_dict(self) -> dict[str, Any]:
        return self.base.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.base.load_state_dict(state)
