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
from functools import cache
from itertools import product

from data.play import words
from data.play.automaton import Automaton, Builder

PLAY = "play"
LENGTH = 1_000_000
SEED = 1

NEW_TOPIC = 0.1  # the probability of a new topic after a speech that asks nothing
NUMBERS = (  # and their articles, the ending of a noun, and that of a verb
    ("singular", words.SINGULAR_ARTICLES, "", words.SINGULAR_VERB),
    ("plural", words.PLURAL_ARTICLES, words.PLURAL_NOUN, words.PLURAL_VERB),
)


def play(length: int = LENGTH, seed: int = SEED) -> str:
    """A play of `length` characters. The grammar is fixed; the seed decides what it writes."""
    return grammar().write(length, seed)


@cache
def grammar() -> Automaton:
    """The automaton that writes the play.

    It describes its states by topic (the vowel), speaker, word (noun, verb, verb ending, ...),
    number (singular, plural) and sentence (statement, question, exclamation). A state outside
    clauses has neither number nor sentence.
    """
    build = Builder()
    scenes = list(product(words.topics(), (0, 1)))
    # where a speech begins if nothing was asked, and if it answers
    free = {scene: build.joint() for scene in scenes}
    asked = {scene: build.joint() for scene in scenes}
    for topic, turn in scenes:
        other = (topic, 1 - turn)
        over = build.joint()
        build.text(over, "", free[other], 1 - NEW_TOPIC)
        elsewhere = [
            begin for (new_topic, _), begin in free.items() if new_topic != topic
        ]
        for begin in elsewhere:
            build.text(over, "", begin, NEW_TOPIC / len(elsewhere))
        _speech(
            build,
            topic,
            turn,
            free[topic, turn],
            asked[topic, turn],
            over,
            asked[other],
        )

    automaton = build.automaton(free[scenes[0]])
    # Tell spaces and punctuation from the words that they were built with.
    descriptions = list(automaton.descriptions)
    for state, character in enumerate(automaton.characters):
        if not character.isalpha():
            descriptions[state] = {
                **descriptions[state],
                "word": "space or punctuation",
            }

    return replace(automaton, descriptions=tuple(descriptions))


def _speech(
    build: Builder,
    topic: words.Topic,
    turn: int,
    free: int,
    asked: int,
    over: int,
    answer: int,
) -> None:
    """One speech: a heading and sentences.

    It begins at `free`, or at `asked` if it answers; it ends at `over`, or at `answer` if it asks.
    """
    heading = topic.speakers[turn] + ":\n"
    build = build.describing(topic=topic.vowel, speaker=topic.speakers[turn])
    stating = build.describing(sentence="statement")
    questioning = build.describing(sentence="question")
    exclaiming = build.describing(sentence="exclamation")
    sentence, ended, clause, ending, end, answering = build.joints(6)
    build.text(free, heading, sentence, word="heading")
    build.text(asked, heading, answering, word="heading")
    stating.choice(answering, _weighted(words.ANSWERS, ", "), clause, word="answer")

    # A statement of one or more clauses.
    statement, joined = build.joints(2)
    build.text(sentence, "", statement, 0.65)
    _clause(stating, topic, statement, ending, capital=True, also_from=clause)
    stating.text(ending, ".", ended, 0.8)
    stating.text(ending, ", ", joined, 0.2)
    stating.choice(joined, _weighted(words.CONJUNCTIONS), clause, word="conjunction")

    # A question, which ends the speech. Its first word announces the question mark at its end.
    question, asking = build.joints(2)
    question_words = _weighted(words.QUESTION_WORDS, total=0.2)
    questioning.choice(sentence, question_words, question, word="question word")
    _clause(questioning, topic, question, asking, capital=False)
    questioning.text(asking, "?\n\n", answer)

    # An exclamation.
    called, shouted = build.joints(2)
    exclaiming.choice(
        sentence, _weighted(words.OATHS, ", ", total=0.15), called, word="oath"
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
    verbed, object_begins = build.joints(2)
    for number, articles, noun_ending, verb_ending in NUMBERS:
        part = build.describing(number=number)
        described, noun, named, placed, place, acting, verb, stem = build.joints(8)
        shares = _weighted(articles, total=1.0)
        if also_from is not None:
            part.choice(also_from, shares, described, word="article")
        if capital:
            shares = {article.capitalize(): share for article, share in shares.items()}
        part.choice(start, shares, described, word="article")
        adjectives = {"": 0.7} | _weighted(topic.adjectives, total=0.3)
        part.choice(described, adjectives, noun, word="adjective")
        _noun(part, topic, noun, noun_ending, named)
        part.text(named, " ", acting, 0.8)
        part.text(named, " ", placed, 0.2)
        part.choice(placed, _weighted(words.PREPOSITIONS), place, word="preposition")
        part.choice(place, _weighted(words.PLACES), acting, word="place")
        adverbs = {"": 0.75} | _weighted(words.ADVERBS, total=0.25)
        part.choice(acting, adverbs, verb, word="adverb")
        part.choice(verb, _weighted(topic.verbs, ""), stem, word="verb")
        part.text(stem, verb_ending, verbed, word="verb ending")

    build.text(verbed, "", end, 0.35)
    build.text(verbed, " ", object_begins, 0.65)
    _noun_phrase(build, topic, object_begins, end)


def _noun_phrase(build: Builder, topic: words.Topic, start: int, end: int) -> None:
    """An article and a noun, singular or plural: an object, or the addressee of an exclamation."""
    for number, articles, noun_ending, _ in NUMBERS:
        part = build.describing(number=number)
        noun = build.joint()
        part.choice(start, _weighted(articles, total=1.0), noun, word="article")
        _noun(part, topic, noun, noun_ending, end)


def _noun(
    build: Builder, topic: words.Topic, start: int, ending: str, end: int
) -> None:
    stem = build.joint()
    build.choice(start, _weighted(topic.nouns, ""), stem, word="noun")
    build.text(stem, ending, end, word="noun ending")


def _weighted(
    choices: tuple[str, ...], after: str = " ", total: float | None = None
) -> dict[str, float]:
    """Words, each with `after` behind it, and weights 1 / (rank + 10) (Mandelbrot 1953), scaled to
    sum to `total`."""
    weights = {
        word + after: 1 / (rank + 10) for rank, word in enumerate(choices, start=1)
    }
    if total is None:
        return weights

    unscaled = sum(weights.values())
    return {text: total * (weight / unscaled) for text, weight in weights.items()}
