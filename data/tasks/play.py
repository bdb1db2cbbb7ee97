"""Seven tasks on the built-in play. Their labels are exact, and so is the best possible score.

The texts come from seeds that pretraining does not use. The ceiling of a task is the expected
accuracy of the Bayes-optimal classifier given the visible text, by the grammar's exact posterior
for 400 texts of the test.
"""

import math
from collections.abc import Callable
from functools import cache, partial
from itertools import compress
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from data.play import words
from data.play.floor import NONE, Floor
from data.play.grammar import PLAY, grammar
from data.tasks.task import (
    CHARACTER,
    N_POOL,
    N_TEST,
    PAIR,
    REPORT,
    SELECTION,
    TASKS,
    TEXT,
    Example,
    Task,
)

# of the pool and of the test; pretraining has 1
SEEDS = {REPORT: (2, 3), SELECTION: (4, 5)}
WINDOW = 128  # characters of an example of tagging
LONGEST = 160  # characters of a speech
# that are written: far more than a speech of at most 159 needs
CHARACTERS_PER_SPEECH = 500
PIECE = 60  # characters of a speech in `follows`
PARAGRAPH = "\n\n"  # between speeches
CEILING_TEXTS = 400  # of the test; all of them would take minutes
HEADING = "____:\n"  # all names have four letters; `_` hides one


class Speech(NamedTuple):
    """A speech without its heading, and the states that wrote it."""

    text: str
    states: list[int]


def speeches(n: int, seed: int, longest: float = math.inf) -> list[Speech]:
    """The first `n` speeches of a play that have at most `longest` characters."""
    automaton = grammar()
    path = automaton.path(CHARACTERS_PER_SPEECH * n, seed)
    kept = []
    end = -len(PARAGRAPH)
    for paragraph in automaton.text_of(path).split(PARAGRAPH):
        end += len(PARAGRAPH) + len(paragraph)
        text = paragraph.partition(":\n")[2]
        if len(text) <= longest:
            kept.append(Speech(text, path[end - len(text) : end]))

    return kept[:n]


@cache
def floor() -> Floor:
    return Floor(grammar())


def shown(texts: list[str]) -> Tensor:
    """Ids of the floor, `[n, longest]`: `_` is a hidden character, and so is what follows a shorter
    text."""
    id_of = {character: i for i, character in enumerate(grammar().alphabet + "_")}
    longest = max(map(len, texts))
    padded = "".join(text.ljust(longest, "_") for text in texts)
    return torch.tensor([id_of[character] for character in padded]).view(
        len(texts), longest
    )


def log_probabilities(texts: list[str]) -> Tensor:
    """log P(all visible characters) of each text, `[n]`; -inf if the grammar cannot write it."""
    return floor().log_probability(shown(texts))


def _parts(
    examples: Callable[[int, int], list[Example]], use: str
) -> tuple[list[Example], list[Example]]:
    """The pool and the test of a use, from a function of their size and seed."""
    pool_seed, test_seed = SEEDS[use]
    return examples(N_POOL, pool_seed), examples(N_TEST, test_seed)


def beliefs_about(distinction: str, texts: list[str]) -> Tensor:
    """P(value of a distinction | text) at each character of texts of one length, `[n_texts *
    length, n_values]`, in the order of the floor's `values`."""
    ids = shown(texts)
    return floor().beliefs(ids, torch.ones_like(ids).bool(), distinction)


def _windows(distinction: str, n: int, seed: int) -> list[Example]:
    automaton = grammar()
    path = automaton.path(n * WINDOW, seed)
    examples = []
    for begin in range(0, len(path), WINDOW):
        states = path[begin : begin + WINDOW]
        labels = [automaton.descriptions[state].get(distinction) for state in states]
        examples.append(Example((automaton.text_of(states),), labels))

    return examples


def _speeches_about(distinction: str, n: int, seed: int) -> list[Example]:
    """Speeches of at most 160 characters, whose label is the value of a distinction in their
    states."""
    descriptions = grammar().descriptions
    return [
        Example((speech.text,), descriptions[speech.states[0]][distinction])
        for speech in speeches(n, seed, LONGEST)
    ]


def beliefs_about_speeches(distinction: str, texts: list[str]) -> Tensor:
    """P(value of a distinction | speech without its heading), `[n_texts, n_values]`."""
    before = PARAGRAPH + HEADING
    ids = shown([before + text + PARAGRAPH for text in texts])
    wanted = torch.zeros_like(ids).bool()
    wanted[:, len(before)] = True
    return floor().beliefs(ids, wanted, distinction)


def _labelled(name: str, kind: str, distinction: str, use: str) -> Task:
    """Texts labelled by a distinction of the grammar: each character of a window, or each speech as
    a whole."""
    examples = _windows if kind == CHARACTER else _speeches_about
    pool, test = _parts(partial(examples, distinction), use)

    def ceiling() -> float:
        texts = [example.texts[0] for example in test[:CEILING_TEXTS]]
        beliefs_of = beliefs_about if kind == CHARACTER else beliefs_about_speeches
        has_label = torch.tensor(
            [value != NONE for value in floor().values(distinction)]
        )
        beliefs = beliefs_of(distinction, texts)[:, has_label]
        # each character counts as far as it has a label
        return float(beliefs.amax(1).sum() / beliefs.sum())

    return Task(name, kind, pool, test, ceiling)


LABELLED = {  # task -> what has labels, and the distinction of the grammar that is the label
    "word_class": (CHARACTER, "word"),  # noun, verb ending, article, ...
    "number": (CHARACTER, "number"),  # of the phrase that a character belongs to
    "sentence_kind": (CHARACTER, "sentence"),  # statement, question or exclamation
    "topic": (TEXT, "topic"),  # one of four
    # one of eight; both of a topic speak alike, so half must be wrong
    "play_speaker": (TEXT, "speaker"),
}


def follows(use: str) -> Task:
    """Whether a speech follows another: the last 60 characters of one, and the first 60 of one.

    In half of the examples, the second is a speech from elsewhere. The posterior compares P(both,
    consecutive) with P(first) * P(second). A piece of fewer than 60 characters is a whole speech,
    so its end and its heading count too.
    """
    pool, test = _parts(_pairs_of_speeches, use)
    texts = [example.texts for example in test[:CEILING_TEXTS]]
    return Task(
        "follows",
        PAIR,
        pool,
        test,
        lambda: float(log_odds(texts).abs().sigmoid().mean()),
    )


def log_odds(pairs: list[tuple[str, ...]]) -> Tensor:
    """The log of the posterior odds, `[n]`, that the second speech of each pair follows the first."""
    firsts = []
    seconds = []
    for first, second in pairs:
        heading = PARAGRAPH + HEADING if len(first) < PIECE else ""
        end = PARAGRAPH if len(second) < PIECE else ""
        firsts.append(heading + first + PARAGRAPH)
        seconds.append(HEADING + second + end)

    together = log_probabilities(list(map(str.__add__, firsts, seconds)))
    alone = log_probabilities([PARAGRAPH + second for second in seconds])
    return together + log_probabilities([PARAGRAPH]) - log_probabilities(firsts) - alone


def _pairs_of_speeches(n: int, seed: int) -> list[Example]:
    written = [speech.text for speech in speeches(2 * n, seed)]
    generator = np.random.Generator(np.random.PCG64(seed))
    elsewhere = generator.permutation(n)
    examples = []
    for i, is_next in enumerate(generator.integers(2, size=n).tolist()):
        first = written[2 * i]
        second = written[2 * (i if is_next else elsewhere[i]) + 1]
        label = "next" if is_next else "elsewhere"
        examples.append(Example((first[-PIECE:], second[:PIECE]), label))

    return examples


def grammatical(use: str) -> Task:
    """Whether a speech is grammatical.

    In half of the examples one character breaks a rule: the agreement of a verb, the plural of a
    noun, the mark of a question, or the vowel of the topic. The grammar cannot write any of these,
    so the ceiling is 1.
    """
    pool, test = _parts(_some_broken, use)
    return Task("grammatical", TEXT, pool, test, lambda: 1.0)


def _some_broken(n: int, seed: int) -> list[Example]:
    """Grammatical and broken speeches in turn."""
    generator = np.random.Generator(np.random.PCG64(seed))
    spare = n // 4  # of the changed speeches, a few are grammatical
    written = speeches(n + spare, seed, LONGEST - 1)
    changed = [broken(speech, generator) for speech in written[n // 2 :]]
    whole = [PARAGRAPH + HEADING + text + PARAGRAPH for text in changed]
    is_broken = log_probabilities(whole).isinf().tolist()
    examples = []
    for speech, text in zip(
        written[: n // 2], compress(changed, is_broken), strict=False
    ):
        examples.append(Example((speech.text,), "grammatical"))
        examples.append(Example((text,), "broken"))

    return examples


def broken(speech: Speech, generator: np.random.Generator) -> str:
    """The speech with one character replaced, added or left out; almost always this breaks a rule."""
    text = speech.text
    descriptions = grammar().descriptions
    classes = [descriptions[state]["word"] for state in speech.states]
    classes.append("")
    changes = []  # an offset, and the new text in place of its character
    for i, character in enumerate(text):
        word = classes[i]
        if word == "verb ending":
            is_singular = character == words.SINGULAR_VERB
            changes.append(
                (i, words.PLURAL_VERB if is_singular else words.SINGULAR_VERB)
            )
        elif word == "noun ending":
            changes.append((i, ""))
        elif word == "noun" and classes[i + 1] not in ("noun", "noun ending"):
            changes.append((i, character + words.PLURAL_NOUN))
        elif character in ".?":
            changes.append((i, "." if character == "?" else "?"))
        if word in ("noun", "verb", "adjective") and character in words.TOPIC_VOWELS:
            changes += [
                (i, vowel) for vowel in words.TOPIC_VOWELS if vowel != character
            ]

    i, new = changes[generator.integers(len(changes))]
    return text[:i] + new + text[i + 1 :]


TASKS[PLAY] = {}
for name, labelled in LABELLED.items():
    TASKS[PLAY][name] = partial(_labelled, name, *labelled)
TASKS[PLAY] |= {"follows": follows, "grammatical": grammatical}
