"""Fixtures and helpers for the tests of masking."""

import torch

from data.masking import Corruption, Masker
from data.masking.corpus_units import CorpusUnits
from data.masking.segmenters import Segmenter
from data.vocabulary import Vocabulary

CPU = torch.device("cpu")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def masker_of(text: str, segmenter: Segmenter, **settings) -> tuple[Masker, torch.Tensor]:
    """A masker for a text, and the text's ids."""
    vocabulary = Vocabulary(text)
    weights = torch.zeros(vocabulary.n_tokens)
    weights[: vocabulary.n_ordinary] = 1
    corruption = Corruption(mask_token=vocabulary.mask_token, random_token_weights=weights)
    settings = {"seed": 0, "device": CPU, **settings}
    return Masker(corruption, segmenter=segmenter, **settings), vocabulary.encode(text)


def units_of(*lengths_and_weights: tuple[int, float]) -> CorpusUnits:
    lengths, weights = zip(*lengths_and_weights, strict=True)
    ids = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths)).int()
    return CorpusUnits(ids, torch.tensor(weights))


def within_four_standard_errors(count: int, n: int, share: float) -> bool:
    return abs(count / n - share) < 4 * (share * (1 - share) / n) ** 0.5
