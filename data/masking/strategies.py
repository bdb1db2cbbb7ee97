"""Masking strategies: which characters are hidden together, and how often.

A strategy is a function from the training text to a `Segmenter`, registered with `@strategy` under
its own name, which `masking.strategy` accepts. The default, `random`, is in
`data.masking.segmenters`. All strategies hide the same number of characters. Of a text that is too
large for the memory, a strategy gets a sample; its rule then cuts the windows of the whole text.
docs/masking.md compares them.
"""

import re
from collections import Counter
from collections.abc import Callable
from functools import wraps

import torch

from data.masking.scripts import SAMPLE, check_words
from data.masking.segmenters import (
    STRATEGIES,
    Characters,
    Segmenter,
    Strategy,
    strategy,
)
from data.masking.units import AdaptiveUnits, CorpusUnits, Spans
from data.masking.weights import Surprise, TfIdf, collocations, joined
from data.masking.words import FUNCTION_WORDS, WORD, cut, names_pattern, words_of

__all__ = ["STRATEGIES", "Strategy", "strategy"]

NAME_WEIGHT = 3.0  # `entity`: the weight of a name; other words have 1
# `syntax`: the weight of a phrase of content words; function words have 1
PHRASE_WEIGHT = 2.0
LONGEST_PHRASE = 4  # `syntax`: in words
FREQUENCY_POWER = -0.5  # `frequency`: below 0 favors rare words, above 0 common ones


def word_strategy(function: Strategy) -> Strategy:
    """Register a strategy that refuses texts without words."""

    @wraps(function)
    def checked(text: str) -> Segmenter:
        sample = text[:SAMPLE]
        check_words(sample, WORD.findall(sample))
        return function(text)

    return strategy(checked)


def units_of(
    text: str, *patterns: str, weight: Callable[[str], float] = lambda piece: 1.0
) -> CorpusUnits:
    """The pieces that `cut` makes of a text, each with its weight."""

    def rule(part: str) -> tuple[list[str], list[float]]:
        pieces = cut(part, *patterns)
        return pieces, [weight(piece) for piece in pieces]

    return CorpusUnits.by_rule(rule, text)


@word_strategy
def whole_word(text: str) -> Segmenter:
    """Whole words (BERT's later release, 2019; Cui et al. 2019): w = 1 for each word and for each
    character between words."""
    return units_of(text)


@word_strategy
def span(text: str) -> Segmenter:
    """Spans of words (SpanBERT, Joshi et al. 2020): lengths geometric with p = 0.2, at most 10, w =
    1."""
    return Spans(units_of(text, rf"{WORD.pattern}\W*"))


@strategy
def span_characters(text: str) -> Segmenter:
    """Spans of characters, with the lengths of `span`: w = 1."""
    return Spans(Characters())


@word_strategy
def entity(text: str) -> Segmenter:
    """Whole names (ERNIE, Sun et al. 2019): w = 3 for a name, 1 for any other word. `names_pattern`
    finds the names in the text itself."""
    name = names_pattern(text)
    after_name = r"(?<=\w)['’]\w+"  # such as 's, a separate unit
    return units_of(
        text,
        name,
        after_name,
        weight=lambda piece: NAME_WEIGHT if re.fullmatch(name, piece) else 1.0,
    )


@word_strategy
def frequency(text: str) -> Segmenter:
    """Words, and the characters between them, by their frequency: w = count^-0.5, which favors rare
    ones."""
    words = Counter(map(str.lower, words_of(text)))
    characters = Counter(text)
    return units_of(
        text,
        weight=lambda piece: (
            (words[piece.lower()] or characters[piece] or 1) ** FREQUENCY_POWER
        ),
    )


@word_strategy
def contextual(text: str) -> Segmenter:
    """Words, and the characters between them, by how surprising they are in context: w = the sum of
    -log p(character | two neighbors on each side), counted without the occurrence itself, and at
    least 0.001 nats."""
    return CorpusUnits.by_rule(Surprise(text).rule, text)


@word_strategy
def pmi(text: str) -> Segmenter:
    """Whole n-grams of words with the highest pointwise mutual information (PMI-Masking, Levine et
    al. 2021): w = 1."""
    grams = collocations([word.lower() for word in words_of(text)])
    return CorpusUnits.by_rule(lambda part: (joined(cut(part), grams), None), text)


@word_strategy
def semantic(text: str) -> Segmenter:
    """Words by how informative they are: w = tf-idf of the word in its speech (Sparck Jones 1972).
    Characters between words have the weight of the least informative word."""
    return CorpusUnits.by_rule(TfIdf(text).rule, text)


@word_strategy
def syntax(text: str) -> Segmenter:
    """Phrases, which are runs of at most four content words between function words and punctuation:
    w = 2, and 1 for a function word. A rule of thumb without parts of speech; its list of function
    words is English."""
    content_word = rf"(?!(?i:{'|'.join(FUNCTION_WORDS)})(?!\w|['’]\w)){WORD.pattern}"
    phrase = rf"{content_word}(?: {content_word}){{0,{LONGEST_PHRASE - 1}}}"
    return units_of(
        text,
        phrase,
        weight=lambda piece: PHRASE_WEIGHT if re.match(phrase, piece) else 1.0,
    )


@word_strategy
def adaptive(text: str) -> Segmenter:
    """Words, and the characters between them, by how hard the model finds them now: w = a running
    mean of its loss on the word (in the spirit of prioritized sampling, Schaul et al. 2016)."""
    types = [piece.lower() for piece in cut(text)]
    number = {name: i for i, name in enumerate(sorted({*types}))}
    type_of = torch.tensor([number[name] for name in types], dtype=torch.int32)
    return AdaptiveUnits(units_of(text), type_of, torch.ones(len(number)))
