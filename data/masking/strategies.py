"""Masking strategies: which characters are hidden together, and how often.

A strategy is a function from the training text to a `Segmenter` (see `data.masking.segmenters`), registered with
`@strategy` under its own name, which `masking.strategy` accepts. All strategies hide the same number of characters.
Of a text that is too large for the memory, a strategy gets a sample; its rule then cuts the windows of the whole text.

`random` and `span_characters` hide every column of a window equally often. The others hide the first and the last
column more often, because the window's ends cut units, and a short unit is more often hidden whole (docs/masking.md).
"""

import re
from collections import Counter
from collections.abc import Callable

import numpy as np
import torch

from data.masking.names import names_pattern
from data.masking.segmenters import RARELY, AdaptiveUnits, Characters, CorpusUnits, Segmenter, Spans
from data.masking.weights import Surprise, TfIdf, collocations, joined
from data.masking.words import FUNCTION_WORDS, WORD, cut

Strategy = Callable[[str], Segmenter]
STRATEGIES: dict[str, Strategy] = {}

NAME_WEIGHT = 3.0  # `entity`: the weight of a name; other words have 1
PHRASE_WEIGHT = 2.0  # `syntax`: the weight of a phrase of content words; function words have 1
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
    return CorpusUnits.by_rule(lambda part: (cut(part), None), text)


@strategy
def span(text: str) -> Segmenter:
    """Spans of words (SpanBERT, Joshi et al. 2020): lengths geometric with p = 0.2, at most 10, w = 1."""
    return Spans(CorpusUnits.by_rule(lambda part: (cut(part, rf"{WORD.pattern}\W*"), None), text))


@strategy
def span_characters(text: str) -> Segmenter:
    """Spans of characters, with the lengths of `span`: w = 1."""
    return Spans(Characters())


@strategy
def entity(text: str) -> Segmenter:
    """Whole names (ERNIE, Sun et al. 2019): w = 3 for a name, 1 for any other word. `names_pattern` finds the names in
    the text itself."""
    name = names_pattern(text)

    def rule(part: str) -> tuple[list[str], list[float]]:
        pieces = cut(part, name, r"(?<=\w)['’]\w+")  # what follows a name, such as 's, is a separate unit
        return pieces, [NAME_WEIGHT if re.fullmatch(name, piece) else 1.0 for piece in pieces]

    return CorpusUnits.by_rule(rule, text)


@strategy
def frequency(text: str) -> Segmenter:
    """Words, and the characters between them, by their frequency: w = count^-0.5, which favors rare ones."""
    words, characters = Counter(map(str.lower, WORD.findall(text))), Counter(text)

    def rule(part: str) -> tuple[list[str], list[float]]:
        pieces = cut(part)
        return pieces, [(words[piece.lower()] or characters[piece] or 1) ** FREQUENCY_POWER for piece in pieces]

    return CorpusUnits.by_rule(rule, text)


@strategy
def contextual(text: str) -> Segmenter:
    """Words, and the characters between them, by how surprising they are in context: w = the sum of -log p(character |
    two neighbors on each side), counted without the occurrence itself, and at least 0.001 nats."""
    counted = Surprise(text)

    def rule(part: str) -> tuple[list[str], list[float]]:
        pieces = cut(part)
        begins = np.cumsum([0, *map(len, pieces[:-1])])
        return pieces, np.add.reduceat(counted(part), begins).clip(min=RARELY).tolist()

    return CorpusUnits.by_rule(rule, text)


@strategy
def pmi(text: str) -> Segmenter:
    """Whole n-grams of words with the highest pointwise mutual information (PMI-Masking, Levine et al. 2021): w = 1."""
    grams = collocations([piece.lower() for piece in cut(text) if WORD.match(piece)])
    return CorpusUnits.by_rule(lambda part: (joined(cut(part), grams), None), text)


@strategy
def semantic(text: str) -> Segmenter:
    """Words by how informative they are: w = tf-idf of the word in its speech (Sparck Jones 1972). Characters between
    words have the weight of the least informative word."""
    informative = TfIdf(text)
    least = min(informative(text), default=1.0)

    def rule(part: str) -> tuple[list[str], list[float]]:
        pieces = cut(part)
        weights = np.full(len(pieces), least)
        weights[[WORD.match(piece) is not None for piece in pieces]] = informative(part)
        return pieces, weights.tolist()

    return CorpusUnits.by_rule(rule, text)


@strategy
def syntax(text: str) -> Segmenter:
    """Phrases, which are runs of at most four content words between function words and punctuation: w = 2, and 1 for a
    function word. A rule of thumb without parts of speech; its list of function words is English."""
    content_word = rf"(?!(?i:{'|'.join(FUNCTION_WORDS)})(?!\w|['’]\w)){WORD.pattern}"
    phrase = rf"{content_word}(?: {content_word}){{0,{LONGEST_PHRASE - 1}}}"

    def rule(part: str) -> tuple[list[str], list[float]]:
        pieces = cut(part, phrase)
        return pieces, [PHRASE_WEIGHT if re.match(phrase, piece) else 1.0 for piece in pieces]

    return CorpusUnits.by_rule(rule, text)


@strategy
def adaptive(text: str) -> Segmenter:
    """Words, and the characters between them, by how hard the model finds them now: w = a running mean of its loss on
    the word (in the spirit of prioritized sampling, Schaul et al. 2016)."""
    pieces = cut(text)
    types = [piece.lower() for piece in pieces]
    number = {name: i for i, name in enumerate(sorted(set(types)))}
    type_of = torch.tensor([number[name] for name in types], dtype=torch.int32)
    return AdaptiveUnits(CorpusUnits.from_pieces(pieces), type_of, torch.ones(len(number)))
