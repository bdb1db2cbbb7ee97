"""The invented words of the built-in play.

Four topics share the consonants of their words and differ in one vowel: *bal* belongs to one topic,
*bel* to another. A masked vowel can therefore be predicted from the topic, which the rest of the
speech reveals, and not from the letters next to it. Words of one topic differ in their consonants,
so masked consonants stay uncertain.
"""

from dataclasses import dataclass
from itertools import product
from math import gcd

TOPIC_VOWELS = "aeio"
NAMES = (("MAVU", "ODRI"), ("SELV", "BRUZ"), ("TIBO", "LYNK"), ("ROVA", "GUDD"))

# the consonants before the vowel, then those after it
NOUNS = ("btmgpsr", "lnrm", "ktd")
VERBS = ("dfvhlw", "nsrl", "kpt")
ADJECTIVES = ("gbdfn", "zvxw")

ADVERBS = ("nu", "su", "du", "lu", "pu", "hu")
PLACES = ("Ansk", "Ensk", "Insk", "Onsk", "Unsk")
SINGULAR_ARTICLES = ("ta", "ma", "na", "sa")
PLURAL_ARTICLES = ("te", "me", "ne", "se")
QUESTION_WORDS = ("Zay", "Zo", "Zey", "Zu")
ANSWERS = ("Ya", "No", "Ye", "So")
OATHS = ("Ach", "Och", "Fye", "Lo", "Vye")
CONJUNCTIONS = ("und", "bot", "sin")
PREPOSITIONS = ("ov", "iv", "uv")

SINGULAR_VERB = "i"
PLURAL_VERB = "u"
PLURAL_NOUN = "s"


@dataclass(frozen=True)
class Topic:
    """The words of one topic, the most frequent ones first. Verbs are without their endings."""

    vowel: str
    speakers: tuple[str, str]
    nouns: tuple[str, ...]
    verbs: tuple[str, ...]
    adjectives: tuple[str, ...]


def topics() -> tuple[Topic, ...]:
    """The four topics, each with its own vowel and its own order of frequency."""
    return tuple(
        Topic(
            vowel,
            NAMES[number],
            _words(NOUNS, vowel, shift=20 * number),
            _words(VERBS, vowel, shift=5 * number),
            _words(ADJECTIVES, vowel, shift=3 * number),
        )
        for number, vowel in enumerate(TOPIC_VOWELS)
    )


def _words(consonants: tuple[str, ...], vowel: str, shift: int) -> tuple[str, ...]:
    """Every combination of the consonants, with the vowel after the first of them."""
    words = [onset + vowel + "".join(rest) for onset, *rest in product(*consonants)]
    # A stride that is coprime to the number of words spreads similar words over the ranks.
    stride = next(
        n for n in range(len(words) // 3, len(words)) if gcd(n, len(words)) == 1
    )
    return tuple(
        words[(rank * stride + shift) % len(words)] for rank in range(len(words))
    )
