"""Masking strategies: which characters are hidden together, and how often.

A strategy is a function from the training text to a `Segmenter` (see `data.masking.segmenters`), registered with
`@strategy` under its own name, which `masking.strategy` accepts. All strategies hide the same number of characters.

`random` and `span_characters` hide every column of a window equally often. The others hide the first and the last
column more often than the average, because the window's ends cut units, and a short unit is more often hidden whole:
at 15% on tiny Shakespeare by 11 to 20% in windows of 32, by 6 to 11% in windows of 64, by 1 to 5% in windows of 256.
"""

from collections.abc import Callable

import numpy as np
import torch

from data.masking.names import find_names
from data.masking.segmenters import RARELY, AdaptiveUnits, Characters, CorpusUnits, Segmenter, Spans
from data.masking.weights import collocations, surprise, tf_idf
from data.masking.words import FUNCTION_WORDS, Words, numbered

Strategy = Callable[[str], Segmenter]
STRATEGIES: dict[str, Strategy] = {}

NAME_WEIGHT = 3.0  # `entity`: the weight of a name; other words have 1
CONTENT_WEIGHT = 2.0  # `syntax`: the weight of a phrase of content words; function words have 1
LONGEST_PHRASE = 4  # `syntax`: in words
FREQUENCY_POWER = -0.5  # `frequency`: below 0 favors rare words, above 0 common ones


def strategy(function: Strategy) -> Strategy:
    """Register a strategy under its function's name."""
    STRATEGIES[function.__name__] = function
    return function


@strategy
def random(text: str) -> Segmenter:
    """Single characters (BERT, Devlin et al. 2018): w = 1."""
    return Characters()


@strategy
def whole_word(text: str) -> Segmenter:
    """Whole words (BERT's later release, 2019; Cui et al. 2019): w = 1 for each word and for each character between
    words."""
    return Words(text).units()


@strategy
def span(text: str) -> Segmenter:
    """Spans of words (SpanBERT, Joshi et al. 2020): lengths geometric with p = 0.2, at most 10, w = 1."""
    return Spans(Words(text).units(spaces_join=True))


@strategy
def span_characters(text: str) -> Segmenter:
    """Spans of characters, with the lengths of `span`: w = 1."""
    return Spans(Characters())


@strategy
def entity(text: str) -> Segmenter:
    """Whole names (ERNIE, Sun et al. 2019): w = 3 for a name, 1 for any other word. `find_names` finds the names in
    the text itself."""
    return Words(text).units(extents=find_names(text), extent_weight=NAME_WEIGHT)


@strategy
def frequency(text: str) -> Segmenter:
    """Words, and the characters between them, by their frequency: w = count^-0.5, which favors rare ones."""
    words = Words(text)
    return words.units(words.counts() ** FREQUENCY_POWER, between=words.character_counts() ** FREQUENCY_POWER)


@strategy
def contextual(text: str) -> Segmenter:
    """Words, and the characters between them, by how surprising they are in context: w = the sum of -log p(character |
    two neighbors on each side), counted without the occurrence itself, and at least 0.001 nats."""
    words = Words(text)
    surprises = surprise(text)
    return words.units(words.sums(surprises).clip(min=RARELY), between=surprises.clip(min=RARELY))


@strategy
def pmi(text: str) -> Segmenter:
    """Whole n-grams of words with the highest pointwise mutual information (PMI-Masking, Levine et al. 2021): w = 1."""
    words = Words(text)
    return words.units(joined=words.grams(collocations(words.lower)))


@strategy
def semantic(text: str) -> Segmenter:
    """Words by how informative they are: w = tf-idf of the word in its speech (Sparck Jones 1972). Characters between
    words have the weight of the least informative word."""
    words = Words(text)
    weights = tf_idf(words)
    return words.units(weights, between=np.full(len(text), weights.min(initial=1.0)))


@strategy
def syntax(text: str) -> Segmenter:
    """Phrases, which are runs of at most four content words between function words and punctuation: w = 2, and 1 for a
    function word. A rule of thumb without parts of speech; its list of function words is English."""
    words = Words(text)
    content = np.array([word not in FUNCTION_WORDS for word in words.lower], dtype=bool)
    return words.units(np.where(content, CONTENT_WEIGHT, 1.0), joined=words.runs(content, LONGEST_PHRASE))


@strategy
def adaptive(text: str) -> Segmenter:
    """Words, and the characters between them, by how hard the model finds them now: w = a running mean of its loss on
    the word (in the spirit of prioritized sampling, Schaul et al. 2016)."""
    words = Words(text)
    units = words.units()
    types = unit_types(words, units)
    return AdaptiveUnits(units, types, torch.ones(int(types.max()) + 1 if len(types) else 1))


def unit_types(words: Words, units: CorpusUnits) -> torch.Tensor:
    """The type of each unit `[n_units]`: the word in lower case, or the single character."""
    begins = np.flatnonzero(np.diff(units.unit_of.numpy(), prepend=-1))
    names = [words.text[begin] for begin in begins.tolist()]
    for unit, word in zip(np.searchsorted(begins, words.begins).tolist(), words.lower, strict=True):
        names[unit] = word
    return torch.from_numpy(numbered(names).astype(np.int32))
