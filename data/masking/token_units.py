"""Applies strategies, which cut a text of characters into units, to other tokens and to texts on
the disk."""

from collections.abc import Callable

import numpy as np
import torch

from data.corpus import Corpus
from data.masking.segmenters import Characters, Segmenter, Strategy, Units
from data.masking.units import AdaptiveUnits, CorpusUnits, Mixture, Rule, Spans
from data.text.sources import CorpusError
from data.vocabulary import Vocabulary

MARGIN = (
    64  # tokens on both sides of a window, so that its ends rarely cut words and names
)


def for_tokens(
    strategy: Strategy, corpus: Corpus, ids: torch.Tensor, vocabulary: Vocabulary
) -> Segmenter:
    """The segmenter of a strategy for the tokens `ids` `[n]` of the training text."""
    if corpus.is_sample:
        return for_stored_text(strategy(corpus.training), ids, vocabulary)
    text, offsets = vocabulary.text_of(ids, corpus.training)
    return strategy(text) if offsets is None else on_tokens(strategy(text), offsets)


def on_tokens(segmenter: Segmenter, offsets: torch.Tensor) -> Segmenter:
    """The segmenter for token i where `segmenter` is for character `offsets[i]`; `offsets` is
    `[n_tokens_of_text]`.

    A token has the unit and the weight of its character. Single characters become single tokens.
    """
    if isinstance(segmenter, Characters):
        return segmenter
    if isinstance(segmenter, Spans | Mixture):
        return with_parts(segmenter, lambda part: on_tokens(part, offsets))
    return OnTokens(segmenter, offsets)


def with_parts(
    segmenter: Segmenter, function: Callable[[Segmenter], Segmenter]
) -> Segmenter:
    """Replaces the parts of a segmenter by `function` of them, in place; returns the segmenter."""
    parts = {name: function(part) for name, part in segmenter.parts().items()}
    if isinstance(segmenter, Mixture):
        segmenter.segmenters = parts
    else:
        vars(segmenter).update(parts)
    return segmenter


class OnTokens(Segmenter):
    """A segmenter of characters that gets the offsets of the tokens' characters."""

    def __init__(self, base: Segmenter, offsets: torch.Tensor):
        self.base, self.char_of = base, offsets
        self.allows_static_masks = base.allows_static_masks  # type: ignore[misc]

    def __call__(
        self, offsets: torch.Tensor, generator: torch.Generator, progress: float
    ) -> Units:
        return self.base(self.char_of[offsets], generator, progress)

    def observe(self, offsets: torch.Tensor, losses: torch.Tensor) -> None:
        self.base.observe(self.char_of[offsets], losses)

    @property
    def learns(self) -> bool:
        return self.base.learns


class WindowUnits(Segmenter):
    """Units that a rule cuts in each window and a margin around it."""

    def __init__(self, rule: Rule, ids: torch.Tensor, vocabulary: Vocabulary):
        """`ids` `[n]` are the training text; they stay where they are."""
        self.rule = rule
        self.text = ids.numpy()
        self.vocabulary = vocabulary

    def __call__(
        self, offsets: torch.Tensor, generator: torch.Generator, progress: float
    ) -> Units:
        cut = [self._cut(window) for window in offsets.cpu().numpy()]
        units, weights = (
            torch.from_numpy(np.stack(part)).to(offsets.device)
            for part in zip(*cut, strict=True)
        )
        return units, weights

    def _cut(self, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The unit and the weight of each token of a window, whose `offsets` are close to each
        other."""
        begin = max(0, int(offsets.min()) - MARGIN)
        ids = torch.from_numpy(
            self.text[begin : int(offsets.max()) + 1 + MARGIN].astype(np.int64)
        )
        text, char_of_token = self.vocabulary.text_of(ids)
        pieces, weights = self.rule(text)
        unit_of_char = np.repeat(
            np.arange(len(pieces)), [len(piece) for piece in pieces]
        )
        unit_of_token = (
            unit_of_char
            if char_of_token is None
            else unit_of_char[char_of_token.numpy()]
        )
        units = unit_of_token[offsets - begin]
        return units, np.ones(
            len(units), np.float32
        ) if weights is None else np.asarray(weights, np.float32)[units]


def for_stored_text(
    segmenter: Segmenter, ids: torch.Tensor, vocabulary: Vocabulary
) -> Segmenter:
    """A segmenter that cuts the windows of `ids` `[n]`, which stay on the disk, by the rules of
    another one.

    Raises CorpusError if the other one needs the whole text in memory.
    """
    if isinstance(segmenter, CorpusUnits) and segmenter.rule:
        return WindowUnits(segmenter.rule, ids, vocabulary)
    if isinstance(segmenter, CorpusUnits | AdaptiveUnits):
        hint = (
            ""
            if isinstance(segmenter, AdaptiveUnits)
            else ", or give yours a rule with CorpusUnits.by_rule"
        )
        raise CorpusError(
            f"this masking.strategy needs the whole text in memory, at least {8 * len(ids) / 1e6:,.0f} MB, and a text"
            f" of this size stays on the disk: use another one{hint}"
        )
    return with_parts(segmenter, lambda part: for_stored_text(part, ids, vocabulary))
