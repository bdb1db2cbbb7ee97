import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from trained.per_label import per_label
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
        f"macro F1 of the fine-tuned model: {expected[2].mean():.3f}"
        in capsys.readouterr().out
    )


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
