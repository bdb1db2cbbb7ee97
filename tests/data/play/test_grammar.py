import hashlib
import re
from itertools import chain, pairwise

import pytest
import torch

from data.play import words
from data.play.grammar import grammar, play
from data.tasks import play as tasks
from data.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def text():
    return play(300_000)


CLOSED = (
    words.ADVERBS,
    words.PLACES,
    words.SINGULAR_ARTICLES,
    words.PLURAL_ARTICLES,
    words.QUESTION_WORDS,
    words.ANSWERS,
    words.OATHS,
    words.CONJUNCTIONS,
    words.PREPOSITIONS,
)


def all_words():
    """Every word form of the play's language."""
    forms = set(chain.from_iterable(CLOSED))
    for topic in words.topics():
        forms |= {*topic.speakers, *topic.nouns, *topic.adjectives}
        forms |= {noun + words.PLURAL_NOUN for noun in topic.nouns}
        forms |= {verb + words.SINGULAR_VERB for verb in topic.verbs}
        forms |= {verb + words.PLURAL_VERB for verb in topic.verbs}

    return forms


def test_it_uses_its_words_and_no_others(text):
    assert len(grammar().characters) <= 20_000

    known = all_words()

    assert len(known) == 1_374

    used = set(re.findall(r"[A-Za-z]+", text[: text.rindex("\n\n")]))

    assert {word.lower() for word in used - known} <= known
    assert len(used & known) > 1_000


def test_characters_are_as_frequent_as_the_stationary_distribution_says(text):
    """The standard error comes from ten plays, because characters of one play are not independent."""
    stationary = grammar().stationary()
    ids = Vocabulary(text).encode("".join(play(100_000, seed) for seed in range(10)))

    assert "".join(Vocabulary(text).characters) == grammar().alphabet

    for i, character in enumerate(grammar().alphabet):
        expected = stationary[[c == character for c in grammar().characters]].sum()
        shares = (ids == i).view(10, -1).double().mean(1)

        assert abs(shares.mean() - expected) < 5 * shares.std() / 10**0.5 + 1e-5, (
            character
        )


def speeches(text):
    return re.findall(r"([A-Z]+):\n(.*?)\n\n", text, re.DOTALL)


def test_a_question_word_announces_a_question_mark_and_the_next_speech_answers(text):
    spoken = speeches(text)
    asked = [
        (i, speech) for i, (_, speech) in enumerate(spoken[:-1]) if speech.endswith("?")
    ]

    assert len(asked) > 100

    for i, speech in asked:
        sentence = re.split(r"(?<=[.!])\s", speech)[-1]
        assert sentence.split(" ")[0] in words.QUESTION_WORDS
        assert spoken[i + 1][1].split(",")[0] in ("Ya", "No", "Ye", "So")

    assert not any("?" in speech[:-1] for _, speech in spoken)


def test_speakers_take_turns_and_topics_last(text):
    names = [name for name, _ in speeches(text)]
    pairs = [set(topic.speakers) for topic in words.topics()]
    same_topic = [{a, b} in pairs for a, b in pairwise(names)]

    assert 0.85 < sum(same_topic) / len(same_topic) < 0.95


def test_verbs_agree_with_their_subjects_across_the_words_in_between(text):
    """The article at the beginning of a sentence decides the verb's ending."""
    verbs = set(chain.from_iterable(topic.verbs for topic in words.topics()))
    checked = 0
    for sentence in re.findall(r"(?:^|[.!?\n] ?)([TMNS][ae] [^,.!?]+)[,.]", text):
        article, *rest = sentence.split(" ")
        verb = next(word for word in rest if word[:-1] in verbs and word[-1] in "iu")
        is_plural = article.lower() in words.PLURAL_ARTICLES

        assert is_plural != (article.lower() in words.SINGULAR_ARTICLES)
        assert is_plural == verb.endswith(words.PLURAL_VERB), sentence

        checked += 1

    assert checked > 1_000


MARKS = {".": "statement", "?": "question", "!": "exclamation"}


def test_states_know_the_distinctions_of_the_grammar():
    """The whole of a text decides them; the kinds of its words follow from the lists of words."""
    floor = tasks.floor()
    text = play(500, seed=0)
    ids = Vocabulary(grammar().alphabet).encode(text)[None]
    everywhere = torch.ones_like(ids).bool()

    def most_probable(distinction):
        values = floor.values(distinction)
        return [
            values[i] for i in floor.beliefs(ids, everywhere, distinction).argmax(1)
        ]

    word = most_probable("word")
    topic = most_probable("topic")
    speaker = most_probable("speaker")
    number = most_probable("number")
    sentence = most_probable("sentence")
    nouns = set(chain.from_iterable(topic.nouns for topic in words.topics()))
    places = set()
    for match in re.finditer(r"[A-Za-z]+|[^A-Za-z]", text[: text.rindex("\n\n")]):
        i = match.start()
        written = match[0]
        places.add(word[i])
        is_plural = number[i] == "plural"
        if word[i] == "noun":
            assert written.removesuffix(words.PLURAL_NOUN) in nouns
            assert is_plural == written.endswith(words.PLURAL_NOUN)
            assert written[1] == topic[i]

        if word[i] == "verb":
            assert word[match.end() - 1] == "verb ending"
            assert is_plural == written.endswith(words.PLURAL_VERB)

        if word[i] == "heading":
            assert written == speaker[i]
        if written in MARKS:
            assert sentence[i] == MARKS[written]

        assert (word[i] == "space or punctuation") == (not written.isalpha())

    assert len(places) == 13  # all kinds of words; endings are the other two


def test_the_play_never_changes():
    """All losses on the play, and its floor, rest on this text."""
    text = play()
    assert len(text) == 1_000_000
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "92a2c04c1d2f46f7"
