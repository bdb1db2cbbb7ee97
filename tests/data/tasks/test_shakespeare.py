from collections import Counter
from itertools import chain

import pytest

from data.corpus import Corpus
from data.tasks.shakespeare import PUNCTUATION, speaker
from data.tasks.task import CHARACTER, CHOICE, REPORT, SELECTION, TASKS
from data.text.sources import CorpusError
from tests.conftest import one_line, written

NAMES = list(TASKS["tiny_shakespeare"])


@pytest.fixture(scope="module")
def tasks(shakespeare):
    return {name: TASKS["tiny_shakespeare"][name](REPORT) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_labelled_texts_are_of_the_training_part_and_test_texts_are_not(
    shakespeare, tasks, name
):
    task = tasks[name]
    if name == "capitals":
        shakespeare = shakespeare.lower()

    corpus = Corpus.from_text("tiny_shakespeare", shakespeare)
    training = corpus.training
    validation = corpus.validation
    if name == "punctuation":
        marks = dict.fromkeys(map(ord, PUNCTUATION))
        training = training.translate(marks)
        validation = validation.translate(marks)

    assert all(example.texts[0] in training for example in task.pool)
    assert all(example.texts[0] in validation for example in task.test)
    assert not {example.texts for example in task.pool} & {
        example.texts for example in task.test
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_is_chosen_without_the_validation_text(shakespeare, name):
    task = TASKS["tiny_shakespeare"][name](SELECTION)
    if name in ("speaker", "question", "word_order"):
        training = shakespeare[: int(len(shakespeare) * 0.9)]
        assert all(example.texts[0] in training for example in [*task.pool, *task.test])

    assert len(task.pool) >= 256


def speeches(names, n, end="\n"):
    return "".join(
        f"{names[i % len(names)]}:{end}I say {i % n}.{end}{end}" for i in range(1_000)
    )


def test_the_speakers_of_a_text_with_other_line_ends_are_found(tmp_path):
    task = speaker(
        REPORT, str(written(tmp_path / "play.txt", speeches("ABC", 10**6, "\r\n")))
    )
    assert (task.labels, task.pool[0].texts[0][:6]) == (["A", "B", "C"], "I say ")


FEW = (
    "A:\nOne.\n\nB:\nTwo.\n\n" + "No speech. " * 100 + "\n\nA:\nThree.\n\nB:\nFour.\n\n"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            FEW,
            "has 2 speeches to learn from, and 2 others for the test: at least 5 and 1",
        ),
        (speeches("AB", 10), "and 0 others for the test"),
    ],
)
def test_too_few_speeches_are_refused(tmp_path, text, message):
    with one_line(CorpusError, message):
        speaker(REPORT, str(written(tmp_path / "play.txt", text)))


def test_the_labels_are_those_of_the_text(shakespeare, tasks):
    for example in tasks["speaker"].test[:50]:
        assert f"{example.label}:\n{example.texts[0]}" in shakespeare

    for example in tasks["question"].test[:50]:
        assert (example.texts[0] + "?" in shakespeare) == (example.label == "question")

    for example in tasks["capitals"].test[:50]:
        assert 10 < len(list(filter(None, example.label))) < 50

        begin = shakespeare.lower().index(example.texts[0])
        for character, label in zip(shakespeare[begin:], example.label, strict=False):
            assert label in (None, "capital" if character.isupper() else "lower case")

    for example in tasks["word_order"].test[:50]:
        original, swapped = example.texts
        assert original in shakespeare
        assert swapped != original
        assert sorted(swapped) == sorted(original)


def test_kinds_and_sizes(tasks):
    for name, task in tasks.items():
        assert (task.kind == CHARACTER) == (name in ("punctuation", "capitals"))
        assert (task.kind == CHOICE) == (name == "word_order")
        assert len(task.pool) >= 128
        assert len(task.test) >= 400

    counts = Counter(chain.from_iterable(e.label for e in tasks["punctuation"].test))

    assert 0.6 < counts["none"] / (counts.total() - counts[None]) < 0.9
