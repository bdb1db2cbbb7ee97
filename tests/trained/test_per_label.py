import numpy as np
import pytest
import torch
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from data.tasks.task import WORDS
from trained.examples import NO_LABEL
from trained.per_label import details, entities, per_label
from trained.task_results import gap_closed


def test_scores_of_labels_are_those_of_scikit_learn(capsys):
    generator = np.random.default_rng(0)
    # the fourth is never given
    truth = generator.integers(3, size=200)
    guesses = generator.integers(4, size=200)
    results = per_label(confusion_matrix(truth, guesses), list("abcd"))

    expected = precision_recall_fscore_support(
        truth, guesses, labels=range(4), zero_division=0.0
    )

    for name, *values in zip("abcd", *expected[:3], strict=True):
        assert list(results["labels"][name].values()) == pytest.approx(values)

    assert results["macro F1"] == pytest.approx(expected[2].mean())
    assert (
        f"of the result: macro F1: {expected[2].mean():.3f}" in capsys.readouterr().out
    )


def test_a_label_that_is_a_comma_can_be_told_from_its_neighbors(capsys):
    per_label(np.array([[1, 3], [0, 4]]), [",", "."])
    assert ". 75%  , 25%" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O B-A I-A B-A O", {("A", 1, 3), ("A", 3, 4)}),
        ("I-A I-A I-B", {("A", 0, 2), ("B", 2, 3)}),
        ("B-A I-B", {("A", 0, 1), ("B", 1, 2)}),
        ("B-A", {("A", 0, 1)}),
        ("O", set()),
        ("", set()),
    ],
)
def test_entities_begin_and_end_with_their_tags(tags, expected):
    assert entities(tags.split()) == expected


def test_an_entity_is_right_if_its_words_and_its_type_are():
    names = ["B-A", "B-B", "I-A", "O"]
    # an entity does not continue in the next text
    labels = [torch.tensor([3, 0, 2]), torch.tensor([2, NO_LABEL, 1])]
    predicted = torch.tensor([3, 0, 2, 2, 2, 1])
    scores = torch.eye(4)[predicted]
    of_types = details(WORDS, [scores, scores], labels, names)["entities"]

    assert of_types["labels"]["B"]["F1"] == 1
    assert of_types["labels"]["A"]["F1"] == pytest.approx(0.5)
    assert of_types["micro F1"] == pytest.approx(2 / 3)


def test_tags_without_entities_have_none():
    scores = torch.eye(2)
    results = details(WORDS, [scores], [torch.tensor([0, 1])], ["NOUN", "O"])
    assert "entities" not in results


@pytest.mark.parametrize(
    ("ceiling", "margin", "expected"),
    [(1.0, 0.1, 0.75), (None, 0.1, None), (1.0, None, None), (0.65, 0.1, None)],
)
def test_the_gap_is_between_the_best_baseline_and_the_ceiling(
    ceiling, margin, expected
):
    means = {
        "pretrained, fine-tuned": 0.9,
        "character n-grams": 0.6,
        "most frequent label": 0.3,
    }
    results = {
        "scores": {
            name: {"mean": mean, "margin": margin} for name, mean in means.items()
        }
    }
    results["ceiling"] = ceiling

    assert gap_closed(results) == pytest.approx(expected)
