"""Five tasks on tiny Shakespeare, with labels that the text itself gives.

Labelled examples come from the text that models are trained on, test examples from the validation
text. For the choice of a preset ("selection"), both come from the training text: its last tenth
takes the place of the validation text.
"""

import re
from collections import Counter
from itertools import chain, pairwise

import numpy as np

from data.corpus import TINY_SHAKESPEARE, load_corpus
from data.tasks.task import (
    CHARACTER,
    CHOICE,
    N_POOL,
    N_TEST,
    REPORT,
    TASKS,
    TEXT,
    Example,
    Task,
)
from data.text.sources import CorpusError

WINDOW = 128  # characters of an example of tagging
LONGEST = 160  # characters of a speech or a sentence
EXCERPT = 80  # characters of a text with two words swapped
SPEAKERS = 10  # at most
FEWEST_SPEECHES = 5  # to learn from
SPEECH = re.compile(r"(?:^|\n\n)([^\n]+):\n(.+?)(?=\n\n|$)", re.DOTALL)
SENTENCE = re.compile(r"[A-Z][^.?!:;]+[.?!](?=\s)")
PUNCTUATION = ",.;:?!"
NEIGHBORS = re.compile(r"(?<=[a-z] )([a-z]+) ([a-z]+)(?= [a-z])")


def parts(use: str, name: str = TINY_SHAKESPEARE) -> tuple[str, str]:
    """The text of labelled examples, and that of test examples. Raises CorpusError if the corpus is
    missing."""
    corpus = load_corpus(name)
    if use == REPORT:
        return corpus.training, corpus.validation

    end = int(0.9 * len(corpus.training))
    return corpus.training[:end], corpus.training[end:]


def _sample(examples: list[Example], n: int, seed: int) -> list[Example]:
    """At most `n` of the examples, in random order."""
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(examples))
    return [examples[i] for i in order[:n]]


def _sampled(name: str, kind: str, pool: list[Example], test: list[Example]) -> Task:
    """A task with samples of examples; a test text that is also in the other part is left out."""
    known = set(chain.from_iterable(example.texts for example in pool))
    test = [example for example in test if not known.intersection(example.texts)]
    return Task(name, kind, _sample(pool, N_POOL, 0), _sample(test, N_TEST, 1))


def speaker(use: str, corpus: str = TINY_SHAKESPEARE) -> Task:
    """The speaker of a speech without its heading: the ten who speak most often in both parts of a
    text.

    Raises CorpusError if no two speakers do, or if their speeches are too few.
    """
    pool, test = (
        SPEECH.findall(text.replace("\r\n", "\n")) for text in parts(use, corpus)
    )
    n_in_pool = Counter(who for who, _ in pool)
    n_in_test = Counter(who for who, _ in test)
    n_in_both = n_in_pool & n_in_test  # the smaller one of the two
    speakers = sorted(n_in_both, key=lambda who: (-n_in_both[who], who))[:SPEAKERS]
    if len(speakers) < 2:
        form = "a blank line, a line NAME:, and the text below it"
        raise CorpusError(f"speaker: the text has no speeches of two speakers ({form})")

    def examples(speeches: list[tuple[str, str]]) -> list[Example]:
        return [
            Example((text[:LONGEST],), who) for who, text in speeches if who in speakers
        ]

    sampled = _sampled("speaker", TEXT, examples(pool), examples(test))
    n_pool = len(sampled.pool)
    n_test = len(sampled.test)
    if n_pool < FEWEST_SPEECHES or not n_test:
        raise CorpusError(
            f"speaker: the text has {n_pool} speeches to learn from, and {n_test} others for the"
            f" test: at least {FEWEST_SPEECHES} and 1 are needed"
        )

    return sampled


def question(use: str) -> Task:
    """Whether a sentence is a question, without its final mark; half of them are."""
    return _sampled("question", TEXT, *map(_balanced, parts(use)))


def _balanced(text: str) -> list[Example]:
    questions = []
    others = []
    for sentence in SENTENCE.findall(text):
        if not 10 <= len(sentence) <= LONGEST:
            continue
        if sentence.endswith("?"):
            questions.append(Example((sentence[:-1],), "question"))
        else:
            others.append(Example((sentence[:-1],), "other"))

    n = min(len(questions), len(others))
    return _sample(questions, n, 0) + _sample(others, n, 0)


def punctuation(use: str) -> Task:
    """The punctuation mark after each word, if any, in text without such marks."""
    return _sampled("punctuation", CHARACTER, *map(_unpunctuated, parts(use)))


def _unpunctuated(text: str) -> list[Example]:
    kept = []
    labels = []
    for before, character, after in zip(text, text[1:], text[2:], strict=False):
        if before in PUNCTUATION:
            continue
        kept.append(before)
        if not before.isalpha() or character.isalpha() or character in "'-":
            labels.append(None)  # not the end of a word
        elif character in PUNCTUATION and after.isspace():
            labels.append(character)
        else:
            labels.append("none")

    return _windows("".join(kept), labels)


def _windows(text: str, labels: list[str | None]) -> list[Example]:
    examples = []
    for begin in range(0, len(text) - WINDOW, WINDOW):
        end = begin + WINDOW
        examples.append(Example((text[begin:end],), labels[begin:end]))

    return examples


def capitals(use: str) -> Task:
    """Whether the first letter of each word is a capital, in lower-case text."""
    return _sampled("capitals", CHARACTER, *map(_in_lower_case, parts(use)))


def _in_lower_case(text: str) -> list[Example]:
    labels = []
    for before, character in pairwise(text):
        is_first = character.isalpha() and not before.isalpha() and before != "'"
        case = "capital" if character.isupper() else "lower case"
        labels.append(case if is_first else None)

    return _windows(text[1:].lower(), labels)


def word_order(use: str) -> Task:
    """Which of two texts is the original; in the other, two neighboring words are swapped."""
    return _sampled("word_order", CHOICE, *map(_swapped, parts(use)))


def _swapped(text: str) -> list[Example]:
    examples = []
    for match in NEIGHBORS.finditer(text):
        first, second = match.groups()
        margin = (EXCERPT - len(match[0])) // 2
        excerpt_begin = max(0, match.start() - margin)
        original = text[excerpt_begin : excerpt_begin + EXCERPT]
        begin = match.start() - excerpt_begin
        end = match.end() - excerpt_begin
        if first != second and end <= EXCERPT:
            swapped = f"{original[:begin]}{second} {first}{original[end:]}"
            examples.append(Example((original, swapped)))
    return examples


TASKS[TINY_SHAKESPEARE] = {
    "speaker": speaker,
    "question": question,
    "punctuation": punctuation,
    "capitals": capitals,
    "word_order": word_order,
}
