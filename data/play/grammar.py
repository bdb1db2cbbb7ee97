"""The built-in play: dialogue in an invented language, written by a stochastic finite-state
grammar.

It needs no file and no network. The grammar is a hidden Markov model, so the Bayes-optimal loss on
the play can be computed exactly (see `data.play.floor`). A model can learn from it, from short
range to long:

- the letters of 1,374 words, whose frequencies fall with their rank as in natural texts;
- agreement: the verb ends in -i after `ta balk` and in -u after `te balks`, even with words in
  between;
- questions: a question word at the beginning of a sentence, a question mark at its end, an answer
  in the next speech;
- the topic, which lasts for several speeches and decides the vowel of almost every word;
- the speakers: the two speakers of a topic take turns.
"""

from dataclasses import replace
from functools import lru_cache

from data.play import words
from data.play.automaton import Automaton, Builder

PLAY = "play"
LENGTH = 1_000_000
SEED = 1

SENTENCES = ("statement", "question", "exclamation")
NEW_TOPIC = 0.1  # the probability of a new topic after a speech that asks nothing
NUMBERS = (  # and their articles, the ending of a noun, and that of a verb
    ("singular", words.SINGULAR_ARTICLES, "", words.SINGULAR_VERB),
    ("plural", words.PLURAL_ARTICLES, words.PLURAL_NOUN, words.PLURAL_VERB),
)


def play(length: int = LENGTH, seed: int = SEED) -> str:
    """A play of `length` characters. The grammar is fixed; the seed decides what it writes."""
    return grammar().write(length, seed)


@lru_cache(maxsize=1)
def grammar() -> Automaton:
    """The automaton that writes the play.

    It describes its states by topic (the vowel), speaker, word (noun, verb, verb ending, ...),
    number (singular, plural) and sentence (statement, question, exclamation). A state outside
    clauses has neither number nor sentence.
    """
    build = Builder()
    scenes = [(topic, turn) for topic in words.topics() for turn in (0, 1)]
    # a speech begins; nothing was asked
    free = {(topic.speakers, turn): build.joint() for topic, turn in scenes}
    # a speech begins with an answer
    asked = {(topic.speakers, turn): build.joint() for topic, turn in scenes}
    for topic, turn in scenes:
        this, other = (topic.speakers, turn), (topic.speakers, 1 - turn)
        over = build.joint()
        build.text(over, "", free[other], 1 - NEW_TOPIC)
        elsewhere = [speech for speech in free if speech[0] != topic.speakers]
        for speech in elsewhere:
            build.text(over, "", free[speech], NEW_TOPIC / len(elsewhere))
        _speech(build, topic, turn, free[this], asked[this], over, asked[other])
    automaton = build.automaton(next(iter(free.values())))
    # Tell spaces and punctuation from the words that they were built with.
    states = zip(automaton.characters, automaton.descriptions, strict=True)
    descriptions = tuple(
        d if char.isalpha() else {**d, "word": "space or punctuation"} for char, d in states
    )
    return replace(automaton, descriptions=descriptions)


def _speech(
    build: Builder, topic: words.Topic, turn: int, free: int, asked: int, over: int, answer: int
) -> None:
    """One speech: a heading and sentences.

    It begins at `free`, or at `asked` if it answers; it ends at `over`, or at `answer` if it asks.
    """
    heading = topic.speakers[turn] + ":\n"
    build = build.describing(topic=topic.vowel, speaker=topic.speakers[turn])
    stating, questioning, exclaiming = (build.describing(sentence=kind) for kind in SENTENCES)
    sentence, ended, clause, ending, end, answering = (build.joint() for _ in range(6))
    build.describing(word="heading").text(free, heading, sentence)
    build.describing(word="heading").text(asked, heading, answering)
    stating.describing(word="answer").choice(answering, _weighted(words.ANSWERS, ", "), clause)

    # A statement of one or more clauses.
    statement, joined = build.joint(), build.joint()
    build.text(sentence, "", statement, 0.65)
    _clause(stating, topic, statement, ending, capital=True, also_from=clause)
    stating.text(ending, ".", ended, 0.8)
    stating.text(ending, ", ", joined, 0.2)
    stating.describing(word="conjunction").choice(joined, _weighted(words.CONJUNCTIONS), clause)

    # A question, which ends the speech. Its first word announces the question mark at its end.
    question, asking = build.joint(), build.joint()
    questioning.describing(word="question word").choice(
        sentence, _weighted(words.QUESTION_WORDS, total=0.2), question
    )
    _clause(questioning, topic, question, asking, capital=False)
    questioning.text(asking, "?\n\n", answer)

    # An exclamation.
    called, shouted = build.joint(), build.joint()
    exclaiming.describing(word="oath").choice(
        sentence, _weighted(words.OATHS, ", ", total=0.15), called
    )
    _noun_phrase(exclaiming, topic, called, shouted)
    exclaiming.text(shouted, "!", ended)

    build.text(ended, " ", sentence, 0.45)
    build.text(ended, "\n", sentence, 0.3)
    build.text(ended, "", end, 0.25)
    build.text(end, "\n\n", over)


def _clause(
    build: Builder,
    topic: words.Topic,
    start: int,
    end: int,
    *,
    capital: bool,
    also_from: int | None = None,
) -> None:
    """Subject, verb and perhaps an object. `also_from` is a second beginning of the same clause, in
    lower case."""
    verbed, object_begins = build.joint(), build.joint()
    for number, articles, noun_ending, verb_ending in NUMBERS:
        part = build.describing(number=number)
        described, named, placed, place, acting, verb, stem = (build.joint() for _ in range(7))
        shares = _weighted(articles, total=1.0)
        article = part.describing(word="article")
        article.choice(
            start,
            {word.capitalize() if capital else word: w for word, w in shares.items()},
            described,
        )
        if also_from is not None:
            article.choice(also_from, shares, described)
        noun = build.joint()
        part.describing(word="adjective").choice(
            described, {"": 0.7} | _weighted(topic.adjectives, total=0.3), noun
        )
        _noun(part, topic, noun, noun_ending, named)
        part.text(named, " ", acting, 0.8)
        part.text(named, " ", placed, 0.2)
        part.describing(word="preposition").choice(placed, _weighted(words.PREPOSITIONS), place)
        part.describing(word="place").choice(place, _weighted(words.PLACES), acting)
        part.describing(word="adverb").choice(
            acting, {"": 0.75} | _weighted(words.ADVERBS, total=0.25), verb
        )
        part.describing(word="verb").choice(verb, _weighted(topic.verbs, ""), stem)
        part.describing(word="verb ending").text(stem, verb_ending, verbed)
    build.text(verbed, "", end, 0.35)
    build.text(verbed, " ", object_begins, 0.65)
    _noun_phrase(build, topic, object_begins, end)


def _noun_phrase(build: Builder, topic: words.Topic, start: int, end: int) -> None:
    """An article and a noun, singular or plural: an object, or the addressee of an exclamation."""
    for number, articles, noun_ending, _ in NUMBERS:
        part, noun = build.describing(number=number), build.joint()
        part.describing(word="article").choice(start, _weighted(articles, total=1.0), noun)
        _noun(part, topic, noun, noun_ending, end)


def _noun(build: Builder, topic: words.Topic, start: int, ending: str, end: int) -> None:
    stem = build.joint()
    build.describing(word="noun").choice(start, _weighted(topic.nouns, ""), stem)
    build.describing(word="noun ending").text(stem, ending, end)


def _weighted(
    choices: tuple[str, ...], after: str = " ", total: float | None = None
) -> dict[str, float]:
    """Words, each with `after` behind it, and weights 1 / (rank + 10) (Mandelbrot 1953), scaled to
    sum to `total`."""
    weights = {word + after: 1 / (rank + 10) for rank, word in enumerate(choices, start=1)}
    if total is None:
        return weights
    unscaled = sum(weights.values())
    return {text: total * (weight / unscaled) for text, weight in weights.items()}
