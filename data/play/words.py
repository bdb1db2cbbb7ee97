"""The invented words of the built-in play.

Four topics share the frames of their words and differ in a vowel: *bal* belongs to one and *bel* to another.
A hidden vowel can therefore be known from the topic, which the rest of the speech tells, and not from the letters
beside it. Words of one topic differ in their consonants: there a choice stays uncertain.
"""

from dataclasses import dataclass
from itertools import product
from math import gcd

TOPIC_VOWELS = "aeio"
NAMES = (("MAVU", "ODRI"), ("SELV", "BRUZ"), ("TIBO", "LYNK"), ("ROVA", "GUDD"))

NOUNS = ("btmgpsr", "lnrm", "ktd")  # onsets, and what follows the vowel
VERBS = ("dfvhlw", "nsrl", "kpt")
ADJECTIVES = ("gbdfn", "zvxw")

ADVERBS = ("nu", "su", "du", "lu", "pu", "hu")
PLACES = ("Ansk", "Ensk", "Insk", "Onsk", "Unsk")
SINGULAR_ARTICLES, PLURAL_ARTICLES = ("ta", "ma", "na", "sa"), ("te", "me", "ne", "se")
QUESTION_WORDS = ("Zay", "Zo", "Zey", "Zu")
ANSWERS = ("Ya", "No", "Ye", "So")
OATHS = ("Ach", "Och", "Fye", "Lo", "Vye")
CONJUNCTIONS = ("und", "bot", "sin")
PREPOSITIONS = ("ov", "iv", "uv")

SINGULAR_VERB, PLURAL_VERB, PLURAL_NOUN = "i", "u", "s"


@dataclass(frozen=True)
class Topic:
    """The words of one topic, each list with the most frequent word first. Verbs are without their endings."""

    speakers: tuple[str, str]
    nouns: tuple[str, ...]
    verbs: tuple[str, ...]
    adjectives: tuple[str, ...]


def topics() -> tuple[Topic, ...]:
    """The four topics: each has its own vowel, and its own favourites among the frames."""
    return tuple(
        Topic(
            NAMES[number],
            _words(NOUNS, vowel, turned=20 * number),
            _words(VERBS, vowel, turned=5 * number),
            _words(ADJECTIVES, vowel, turned=3 * number),
        )
        for number, vowel in enumerate(TOPIC_VOWELS)
    )


def zipf(words: tuple[str, ...]) -> dict[str, float]:
    """Weights that fall with the rank, 1 / (rank + 10) (Mandelbrot 1953)."""
    return {word: 1 / (rank + 10) for rank, word in enumerate(words, start=1)}


def all_words() -> set[str]:
    """Every word form that the play can use."""
    closed = (ADVERBS, PLACES, SINGULAR_ARTICLES, PLURAL_ARTICLES, QUESTION_WORDS, ANSWERS, OATHS, CONJUNCTIONS)
    words = set(PREPOSITIONS).union(*closed)
    for topic in topics():
        words |= {*topic.speakers, *topic.nouns, *topic.adjectives}
        words |= {noun + PLURAL_NOUN for noun in topic.nouns}
        words |= {verb + ending for verb in topic.verbs for ending in (SINGULAR_VERB, PLURAL_VERB)}
    return words


def _words(consonants: tuple[str, ...], vowel: str, turned: int) -> tuple[str, ...]:
    """Every combination of the consonants, with the vowel behind the first of them."""
    words = [onset + vowel + "".join(rest) for onset, *rest in product(*consonants)]
    # A stride that has no factor in common with their number scatters the families over the ranks.
    stride = next(n for n in range(len(words) // 3, len(words)) if gcd(n, len(words)) == 1)
    return tuple(words[(rank * stride + turned) % len(words)] for rank in range(len(words)))
