"""The built-in play: dialogue in an invented language, written by a stochastic finite-state grammar.

It needs no file and no network. The grammar is a hidden Markov model, so the Bayes-optimal loss on the play can be
computed exactly (see `data.play.floor`). A model can learn from it, from short range to long:

- the letters of 1,374 words, whose frequencies fall with their rank as in natural texts;
- agreement: the verb ends in -i after `ta balk` and in -u after `te balks`, even with words in between;
- questions: a question word at the beginning of a sentence, a question mark at its end, an answer in the next speech;
- the topic, which lasts for several speeches and decides the vowel of almost every word;
- the speakers: the two speakers of a topic take turns.
"""

from functools import lru_cache

from data.play import words
from data.play.automaton import Automaton, Builder

PLAY = "play"
LENGTH = 1_000_000
SEED = 1

NEW_TOPIC = 0.1  # the probability of a new topic after a speech that asks nothing


def play(length: int = LENGTH, seed: int = SEED) -> str:
    """A play of `length` characters. The grammar is fixed; the seed decides what it writes."""
    return grammar().write(length, seed)


@lru_cache(maxsize=1)
def grammar() -> Automaton:
    """The automaton that writes the play."""
    build = Builder()
    scenes = [(topic, turn) for topic in words.topics() for turn in (0, 1)]
    free = {(topic.speakers, turn): build.joint() for topic, turn in scenes}  # a speech begins; nothing was asked
    asked = {(topic.speakers, turn): build.joint() for topic, turn in scenes}  # a speech begins with an answer
    for topic, turn in scenes:
        this, other = (topic.speakers, turn), (topic.speakers, 1 - turn)
        over = build.joint()
        build.text(over, "", free[other], 1 - NEW_TOPIC)
        elsewhere = [speech for speech in free if speech[0] != topic.speakers]
        for speech in elsewhere:
            build.text(over, "", free[speech], NEW_TOPIC / len(elsewhere))
        _speech(build, topic, turn, free[this], asked[this], over, asked[other])
    return build.automaton(next(iter(free.values())))


def _speech(build: Builder, topic: words.Topic, turn: int, free: int, asked: int, over: int, answer: int) -> None:
    """One speech: a heading and sentences.

    It begins at `free`, or at `asked` if it answers; it ends at `over`, or at `answer` if it asks.
    """
    heading = topic.speakers[turn] + ":\n"
    sentence, ended, clause, ending, end, answering = (build.joint() for _ in range(6))
    build.text(free, heading, sentence)
    build.text(asked, heading, answering)
    build.choice(answering, _weighted(words.ANSWERS, ", "), clause)

    # A statement of one or more clauses.
    statement, joined = build.joint(), build.joint()
    build.text(sentence, "", statement, 0.65)
    _clause(build, topic, statement, ending, capital=True, also_from=clause)
    build.text(ending, ".", ended, 0.8)
    build.text(ending, ", ", joined, 0.2)
    build.choice(joined, _weighted(words.CONJUNCTIONS), clause)

    # A question, which ends the speech. Its first word announces the question mark at its end.
    question, asking = build.joint(), build.joint()
    build.choice(sentence, _weighted(words.QUESTION_WORDS, total=0.2), question)
    _clause(build, topic, question, asking, capital=False)
    build.text(asking, "?\n\n", answer)

    # An exclamation.
    called, shouted = build.joint(), build.joint()
    build.choice(sentence, _weighted(words.OATHS, ", ", total=0.15), called)
    _noun_phrase(build, topic, called, shouted)
    build.text(shouted, "!", ended)

    build.text(ended, " ", sentence, 0.45)
    build.text(ended, "\n", sentence, 0.3)
    build.text(ended, "", end, 0.25)
    build.text(end, "\n\n", over)


def _clause(
    build: Builder, topic: words.Topic, start: int, end: int, *, capital: bool, also_from: int | None = None
) -> None:
    """Subject, verb and perhaps an object. `also_from` is a second beginning of the same clause, in lower case."""
    verbed, object_begins = build.joint(), build.joint()
    for articles, plural_noun, verb_ending in (
        (words.SINGULAR_ARTICLES, "", words.SINGULAR_VERB),
        (words.PLURAL_ARTICLES, words.PLURAL_NOUN, words.PLURAL_VERB),
    ):
        described, named, placed, place, acting, verb, stem = (build.joint() for _ in range(7))
        shares = _weighted(articles, total=1.0)
        build.choice(start, {word.capitalize() if capital else word: w for word, w in shares.items()}, described)
        if also_from is not None:
            build.choice(also_from, shares, described)
        noun = build.joint()
        build.choice(described, {"": 0.7} | _weighted(topic.adjectives, total=0.3), noun)
        _noun(build, topic, noun, plural_noun, named)
        build.text(named, " ", acting, 0.8)
        build.text(named, " ", placed, 0.2)
        build.choice(placed, _weighted(words.PREPOSITIONS), place)
        build.choice(place, _weighted(words.PLACES), acting)
        build.choice(acting, {"": 0.75} | _weighted(words.ADVERBS, total=0.25), verb)
        build.choice(verb, _weighted(topic.verbs, ""), stem)
        build.text(stem, verb_ending, verbed)
    build.text(verbed, "", end, 0.35)
    build.text(verbed, " ", object_begins, 0.65)
    _noun_phrase(build, topic, object_begins, end)


def _noun_phrase(build: Builder, topic: words.Topic, start: int, end: int) -> None:
    """An article and a noun, singular or plural: an object, or the addressee of an exclamation."""
    for articles, plural_noun in ((words.SINGULAR_ARTICLES, ""), (words.PLURAL_ARTICLES, words.PLURAL_NOUN)):
        noun = build.joint()
        build.choice(start, _weighted(articles, total=1.0), noun)
        _noun(build, topic, noun, plural_noun, end)


def _noun(build: Builder, topic: words.Topic, start: int, ending: str, end: int) -> None:
    stem = build.joint()
    build.choice(start, _weighted(topic.nouns, ""), stem)
    build.text(stem, ending, end)


def _weighted(choices: tuple[str, ...], after: str = " ", total: float | None = None) -> dict[str, float]:
    """Words, each with `after` behind it, and weights 1 / (rank + 10) (Mandelbrot 1953), scaled to sum to `total`."""
    weights = {word + after: 1 / (rank + 10) for rank, word in enumerate(choices, start=1)}
    if total is None:
        return weights
    unscaled = sum(weights.values())
    return {text: total * (weight / unscaled) for text, weight in weights.items()}
