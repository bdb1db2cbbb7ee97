"""The built-in play: dialogue in an invented language, written by a stochastic finite-state grammar.

It needs no file and no network, and since the grammar is a hidden Markov model, the best loss that any model can
reach on it is known exactly (see `data.play.floor`). What a model can learn from it, from near to far:

- the letters of 1,374 words, with frequencies that fall as in natural texts;
- agreement: after `ta balk` the verb ends in -i, after `te balks` in -u, with words between them;
- a question word at the beginning of a sentence, a question mark at its end, and an answer in the next speech;
- the topic, which lasts for some speeches and decides the vowel of almost every word;
- who speaks: the two speakers of a topic take turns.
"""

from functools import lru_cache

from data.play.automaton import Automaton, Builder
from data.play.words import (
    ADVERBS,
    ANSWERS,
    CONJUNCTIONS,
    OATHS,
    PLACES,
    PLURAL_ARTICLES,
    PLURAL_NOUN,
    PLURAL_VERB,
    PREPOSITIONS,
    QUESTION_WORDS,
    SINGULAR_ARTICLES,
    SINGULAR_VERB,
    Topic,
    topics,
    zipf,
)

PLAY = "play"
LENGTH = 1_000_000
SEED = 1

NEW_TOPIC = 0.1  # after a speech that asks nothing


def play(length: int = LENGTH, seed: int = SEED) -> str:
    """A play of `length` characters. The grammar is fixed; the seed draws the text."""
    return grammar().write(length, seed)


@lru_cache(maxsize=1)
def grammar() -> Automaton:
    """The automaton that writes the play."""
    build = Builder()
    scenes = [(topic, turn) for topic in topics() for turn in (0, 1)]
    free = {(topic.speakers, turn): build.joint() for topic, turn in scenes}  # a speech begins, nothing was asked
    asked = {(topic.speakers, turn): build.joint() for topic, turn in scenes}  # a speech begins, and answers
    for topic, turn in scenes:
        this, other = (topic.speakers, turn), (topic.speakers, 1 - turn)
        over = build.joint()
        build.word(over, "", free[other], 1 - NEW_TOPIC)
        elsewhere = [speech for speech in free if speech[0] != topic.speakers]
        for speech in elsewhere:
            build.word(over, "", free[speech], NEW_TOPIC / len(elsewhere))
        _speech(build, topic, turn, free[this], asked[this], over, asked[other])
    return build.automaton(next(iter(free.values())))


def _speech(build: Builder, topic: Topic, turn: int, free: int, asked: int, over: int, answer: int) -> None:
    """One speech: a heading and its sentences. Begins at `free`, or at `asked` where it answers; ends at `over`, or
    at `answer` where it has asked."""
    heading = topic.speakers[turn] + ":\n"
    sentence, ended, clause, ending, end = (build.joint() for _ in range(5))
    build.word(free, heading, sentence)
    answering = build.joint()
    build.word(asked, heading, answering)
    build.words(answering, zipf(tuple(f"{word}, " for word in ANSWERS)), clause)

    # A statement; one clause may follow another.
    build.word(sentence, "", statement := build.joint(), 0.65)
    _clause(build, topic, statement, ending, capital=True, also_from=clause)
    build.word(ending, ".", ended, 0.8)
    joined = build.joint()
    build.word(ending, ", ", joined, 0.2)
    build.words(joined, zipf(tuple(f"{word} " for word in CONJUNCTIONS)), clause)

    # A question ends the speech; the question word at its beginning stands for the question mark at its end.
    question, asking = build.joint(), build.joint()
    build.words(sentence, {f"{word} ": 0.2 * w for word, w in _shares(QUESTION_WORDS).items()}, question)
    _clause(build, topic, question, asking, capital=False)
    build.word(asking, "?\n\n", answer)

    # An exclamation.
    called = build.joint()
    build.words(sentence, {f"{word}, ": 0.15 * w for word, w in _shares(OATHS).items()}, called)
    _noun_phrase(build, topic, called, shouted := build.joint())
    build.word(shouted, "!", ended)

    build.word(ended, " ", sentence, 0.45)
    build.word(ended, "\n", sentence, 0.3)
    build.word(ended, "", end, 0.25)
    build.word(end, "\n\n", over)


def _clause(build: Builder, topic: Topic, start: int, end: int, *, capital: bool, also_from: int | None = None) -> None:
    """Subject, verb and perhaps an object. `also_from` is a second way in, to the same clause in small letters."""
    verbed = build.joint()
    for articles, plural_noun, ending in (
        (SINGULAR_ARTICLES, "", SINGULAR_VERB),
        (PLURAL_ARTICLES, PLURAL_NOUN, PLURAL_VERB),
    ):
        described, named, acting, stem = (build.joint() for _ in range(4))
        shares = {f"{word} ": weight for word, weight in _shares(articles).items()}
        build.words(start, {word.capitalize() if capital else word: w for word, w in shares.items()}, described)
        if also_from is not None:
            build.words(also_from, shares, described)
        _described_noun(build, topic, described, plural_noun, named)
        build.word(named, " ", acting, 0.8)
        build.word(named, " ", placed := build.joint(), 0.2)
        _place(build, placed, acting)
        build.words(
            acting, {"": 0.75} | {f"{word} ": 0.25 * w for word, w in _shares(ADVERBS).items()}, verb := build.joint()
        )
        build.words(verb, zipf(topic.verbs), stem)
        build.word(stem, ending, verbed)
    build.word(verbed, "", end, 0.35)
    build.word(verbed, " ", onto := build.joint(), 0.65)
    _noun_phrase(build, topic, onto, end)


def _noun_phrase(build: Builder, topic: Topic, start: int, end: int) -> None:
    """An article and a noun, one or several: an object, or what is called out."""
    for articles, plural_noun in ((SINGULAR_ARTICLES, ""), (PLURAL_ARTICLES, PLURAL_NOUN)):
        noun = build.joint()
        build.words(start, {f"{word} ": weight for word, weight in _shares(articles).items()}, noun)
        build.words(noun, zipf(topic.nouns), stem := build.joint())
        build.word(stem, plural_noun, end)


def _described_noun(build: Builder, topic: Topic, start: int, plural_noun: str, end: int) -> None:
    """Perhaps an adjective, and a noun."""
    adjectives = {f"{word} ": 0.3 * weight for word, weight in _shares(topic.adjectives).items()}
    build.words(start, {"": 0.7} | adjectives, noun := build.joint())
    build.words(noun, zipf(topic.nouns), stem := build.joint())
    build.word(stem, plural_noun, end)


def _place(build: Builder, start: int, end: int) -> None:
    """A preposition and a place, between a subject and its verb."""
    build.words(start, zipf(tuple(f"{word} " for word in PREPOSITIONS)), where := build.joint())
    build.words(where, zipf(tuple(f"{word} " for word in PLACES)), end)


def _shares(words: tuple[str, ...]) -> dict[str, float]:
    """Weights as `zipf` gives them, summing to 1."""
    weights = zipf(words)
    total = sum(weights.values())
    return {word: weight / total for word, weight in weights.items()}
