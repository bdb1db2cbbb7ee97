"""Five tasks on tiny Shakespeare, with labels that the text itself gives.

Labelled examples come from the text that models are trained on, test examples from the validation
text. For the choice of a preset ("selection"), both come from the training text: its last tenth
takes the place of the validation text.
"""

import re
from collections import Counter
from collections.abc import Iterator

import numpy as np

from data.corpus import TINY_SHAKESPEARE, load_corpus
from data.tasks.task import CHARACTER, CHOICE, N_POOL, N_TEST, REPORT, TEXT, Example, Task, task
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
    known = {text for example in pool for text in example.texts}
    test = [example for example in test if not known.intersection(example.texts)]
    return Task(name, kind, _sample(pool, N_POOL, 0), _sample(test, N_TEST, 1))


@task(TINY_SHAKESPEARE)
def speaker(use: str, corpus: str = TINY_SHAKESPEARE) -> Task:
    """The speaker of a speech without its heading: the ten who speak most often in both parts of a
    text.

    Raises CorpusError if no two speakers do, or if their speeches are too few.
    """
    pool, test = (SPEECH.findall(text.replace("\r\n", "\n")) for text in parts(use, corpus))
    in_pool, in_test = (Counter(who for who, _ in speeches) for speeches in (pool, test))
    both = sorted(in_pool, key=lambda who: (-min(in_pool[who], in_test[who]), who))[:SPEAKERS]
    both = [who for who in both if in_test[who]]
    if len(both) < 2:
        form = "a blank line, a line NAME:, and the text below it"
        raise CorpusError(f"speaker: the text has no speeches of two speakers ({form})")
    examples = (
        [Example((text[:LONGEST],), who) for who, text in speeches if who in both]
        for speeches in (pool, test)
    )
    found = _sampled("speaker", TEXT, *examples)
    if len(found.pool) < FEWEST_SPEECHES or not found.test:
        n = f"{len(found.pool)} speeches to learn from, and {len(found.test)} others for the test"
        raise CorpusError(f"speaker: the text has {n}: at least {FEWEST_SPEECHES} and 1 are needed")
    return found


@task(TINY_SHAKESPEARE)
def question(use: str) -> Task:
    """Whether a sentence is a question, without its final mark; half of them are."""
    return _sampled("question", TEXT, *(_balanced(text) for text in parts(use)))


def _balanced(text: str) -> list[Example]:
    sentences = [sentence for sentence in SENTENCE.findall(text) if 10 <= len(sentence) <= LONGEST]
    questions = [Example((each[:-1],), "question") for each in sentences if each.endswith("?")]
    others = [Example((each[:-1],), "other") for each in sentences if not each.endswith("?")]
    n = min(len(questions), len(others))
    return _sample(questions, n, 0) + _sample(others, n, 0)


@task(TINY_SHAKESPEARE)
def punctuation(use: str) -> Task:
    """The punctuation mark after each word, if any, in text without such marks."""
    return _sampled("punctuation", CHARACTER, *(list(_unpunctuated(text)) for text in parts(use)))


def _unpunctuated(text: str) -> Iterator[Example]:
    kept: list[str] = []
    labels: list[str | None] = []
    for character, after, following in zip(text, text[1:], text[2:], strict=False):
        if character in PUNCTUATION:
            continue
        is_end = character.isalpha() and not after.isalpha() and after not in "'-"
        kept.append(character)
        labels.append(
            (after if after in PUNCTUATION and following.isspace() else "none") if is_end else None
        )
    for i in range(0, len(kept) - WINDOW, WINDOW):
        yield Example(("".join(kept[i : i + WINDOW]),), labels[i : i + WINDOW])


@task(TINY_SHAKESPEARE)
def capitals(use: str) -> Task:
    """Whether the first letter of each word is a capital, in lower-case text."""
    return _sampled("capitals", CHARACTER, *(list(_in_lower_case(text)) for text in parts(use)))


def _in_lower_case(text: str) -> Iterator[Example]:
    for i in range(1, len(text) - WINDOW, WINDOW):
        window, before = text[i : i + WINDOW], text[i - 1 : i + WINDOW - 1]
        is_first = [
            c.isalpha() and not (b.isalpha() or b == "'")
            for b, c in zip(before, window, strict=True)
        ]
        cases = ["capital" if c.isupper() else "lower case" for c in window]
        yield Example(
            (window.lower(),),
            [case if first else None for case, first in zip(cases, is_first, strict=True)],
        )


@task(TINY_SHAKESPEARE)
def word_order(use: str) -> Task:
    """Which of two texts is the original; in the other, two neighboring words are swapped."""
    return _sampled("word_order", CHOICE, *(list(_swapped(text)) for text in parts(use)))


def _swapped(text: str) -> Iterator[Example]:
    for match in NEIGHBORS.finditer(text):
        first, second = match.groups()
        begin = max(0, match.start() - (EXCERPT - len(match[0])) // 2)
        original = text[begin : begin + EXCERPT]
        at = match.start() - begin
        if first != second and at + len(match[0]) <= EXCERPT:
            yield Example(
                (original, original[:at] + f"{second} {first}" + original[at + len(match[0]) :])
            )
