"""Fixtures and helpers for the tests of masking."""

import torch

from data.masking import Corruption, SegmentMasker
from data.masking.segmenters import Segmenter
from data.masking.units import CorpusUnits
from data.vocabulary import Vocabulary

CPU = torch.device("cpu")
# a vocabulary of 20 characters and three special tokens
N_CHARS = 20
PAD = 20
MASK = 21
CLS = 22


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def text(*shape, high=N_CHARS):
    return torch.randint(high, shape, generator=generator(1))


def masker_of(corpus, segmenter, **settings):
    """A masker for a text, and the text's ids."""
    vocabulary = Vocabulary(corpus)
    weights = torch.zeros(vocabulary.n_tokens)
    weights[: vocabulary.n_ordinary] = 1
    corruption = Corruption(
        mask_token=vocabulary.mask_token, random_token_weights=weights
    )
    settings = {"seed": 0, "device": CPU, **settings}
    masker = SegmentMasker(corruption, segmenter=segmenter, **settings)
    return masker, vocabulary.encode(corpus)


def units_of(*lengths_and_weights):
    lengths, weights = zip(*lengths_and_weights, strict=True)
    numbers = torch.arange(len(lengths), dtype=torch.int32)
    ids = numbers.repeat_interleave(torch.tensor(lengths))
    return CorpusUnits(ids, torch.tensor(weights))


class Fresh(Segmenter):
    """A user's strategy: single characters; those that were masked before weigh less."""

    allows_static_masks = False

    def __init__(self, n_chars):
        self.times_masked = torch.zeros(n_chars)

    def __call__(self, offsets, generator, progress):
        return offsets, 1 / (1 + self.times_masked[offsets])

    def observe(self, offsets, losses):
        is_masked = (losses > 0).float()
        self.times_masked = self.times_masked.index_add(0, offsets, is_masked)

    def state_dict(self):
        return {"times_masked": self.times_masked}

    def load_state_dict(self, state):
        self.times_masked = state["times_masked"].to(self.times_masked.device)


def chi_square(counts, probabilities):
    """Pearson's statistic divided by its standard deviation, after subtracting its mean: below 4
    for equal ones."""
    expected = probabilities.double() * counts.sum()
    possible = expected > 0

    assert counts[~possible].sum() == 0, "something impossible was drawn"

    differences = counts[possible] - expected[possible]
    statistic = (differences**2 / expected[possible]).sum()
    freedom = int(possible.sum()) - 1
    return float((statistic - freedom) / (2 * freedom) ** 0.5)


def within_four_standard_errors(count, n, share):
    standard_error = (share * (1 - share) / n) ** 0.5
    return abs(count / n - share) < 4 * standard_error
