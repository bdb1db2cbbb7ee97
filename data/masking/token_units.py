"""Applies strategies, which cut a text of characters into units, to other tokens and to texts on
the disk."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch

from data.corpus import Corpus
from data.masking.segmenters import Characters, Segmenter, Strategy, Units
from data.masking.units import AdaptiveUnits, CorpusUnits, Mixture, Rule, Spans
from data.text.sources import CorpusError
from data.vocabulary import Vocabulary

# tokens on both sides of a window, so that its ends rarely cut words and names
MARGIN = 64


def for_tokens(
    strategy: Strategy,
    corpus: Corpus,
    ids: torch.Tensor,
    vocabulary: Vocabulary,
    documents: torch.Tensor | None = None,
) -> Segmenter:
    """The segmenter of a strategy for the tokens `ids` `[n]` of the training text. `documents`
    `[n_documents]` are the ascending offsets at which the documents of a text on the disk end."""
    if documents is not None and corpus.is_sample:
        segmenter = strategy(corpus.training)
        return for_stored_text(segmenter, ids, vocabulary, documents.numpy())
    if documents is not None:
        text, offsets = in_lines(ids, documents, vocabulary)
        return on_tokens(strategy(text), offsets)
    text, offsets = vocabulary.text_of(ids, corpus.training)
    return strategy(text) if offsets is None else on_tokens(strategy(text), offsets)


def in_lines(
    ids: torch.Tensor, documents: torch.Tensor, vocabulary: Vocabulary
) -> tuple[str, torch.Tensor]:
    """The text of documents, each with a line end in place of its `[SEP]`, and the offset in it of
    the character of each token of `ids`, `[n]`."""
    texts = []
    offsets = []
    n_chars = 0
    for begin, end in pairwise([0, *documents.tolist()]):
        text, char_of_token = vocabulary.text_of(ids[begin : end - 1].long())
        if char_of_token is None:
            char_of_token = torch.arange(len(text))
        offsets += [n_chars + char_of_token, torch.tensor([n_chars + len(text)])]
        texts.append(f"{text}\n")
        n_chars += len(texts[-1])
    return "".join(texts), torch.cat(offsets)


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
    """Units that a rule cuts in each piece of a window and a margin around it, inside of its
    document."""

    def __init__(
        self,
        rule: Rule,
        ids: torch.Tensor,
        vocabulary: Vocabulary,
        documents: np.ndarray,
    ):
        """`ids` `[n]` are the training text; they stay where they are. `documents` `[n_documents]`
        are the ascending offsets at which documents end."""
        self.rule = rule
        self.text = ids.numpy()
        self.vocabulary = vocabulary
        self.documents = documents

    def __call__(
        self, offsets: torch.Tensor, generator: torch.Generator, progress: float
    ) -> Units:
        shape = offsets.shape
        at = offsets.cpu().numpy().ravel()
        documents = np.searchsorted(self.documents, at, side="right")
        # a special token may repeat the offset of its neighbor
        begins = (np.diff(at) >> 1 != 0) | (np.diff(documents) != 0)
        begins[shape[1] - 1 :: shape[1]] = True
        borders = [0, *(np.flatnonzero(begins) + 1).tolist(), len(at)]
        n_units = 0
        units = np.empty(len(at), np.int64)
        weights = np.ones(len(at), np.float32)
        for begin, end in pairwise(borders):
            piece = slice(begin, end)
            of_piece, weights_of_piece = self._cut(at[piece], documents[begin])
            units[piece] = n_units + of_piece
            n_units = int(units[end - 1]) + 1  # so that pieces share no unit
            if weights_of_piece is not None:
                weights[piece] = weights_of_piece
        return (
            torch.from_numpy(units).view(shape).to(offsets.device),
            torch.from_numpy(weights).view(shape).to(offsets.device),
        )

    def _cut(
        self, offsets: np.ndarray, document: int
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """The unit of each token of a piece of a document, from 0 on, and its weight, if it is not
        1."""
        first, end = int(offsets[0]), int(offsets[-1]) + 1
        lowest = int(self.documents[document - 1]) if document else 0
        highest = int(self.documents[document])
        begin = max(lowest, first - MARGIN)
        ids = self.text[begin : min(highest, end + MARGIN)].astype(np.int64)
        text, char_of_token = self.vocabulary.text_of(torch.from_numpy(ids))
        pieces, weights = self.rule(text)
        lengths = [len(piece) for piece in pieces]
        unit_of_char = np.repeat(np.arange(len(pieces)), lengths)
        unit_of_token = unit_of_char
        if char_of_token is not None:
            unit_of_token = unit_of_char[char_of_token.numpy()]
        units = unit_of_token[offsets - begin]
        of_units = None if weights is None else np.asarray(weights, np.float32)[units]
        return units - units[0], of_units


def for_stored_text(
    segmenter: Segmenter,
    ids: torch.Tensor,
    vocabulary: Vocabulary,
    documents: np.ndarray,
) -> Segmenter:
    """A segmenter that cuts the windows of `ids` `[n]`, which stay on the disk, by the rules of
    another one. `documents` are the offsets at which documents end.

    Raises CorpusError if the other one needs the whole text in memory.
    """
    if isinstance(segmenter, CorpusUnits) and segmenter.rule:
        return WindowUnits(segmenter.rule, ids, vocabulary, documents)
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

    def on_the_disk(part: Segmenter) -> Segmenter:
        return for_stored_text(part, ids, vocabulary, documents)

    return with_parts(segmenter, on_the_disk)
