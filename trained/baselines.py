"""Classifiers by scikit-learn: the baselines of fine-tuning, and the linear probe of a frozen encoder."""

from collections.abc import Mapping, Sequence
from typing import Any

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from trained.tasks import Task

NGRAM_LENGTHS = (1, 5)
INVERSE_PENALTIES = (0.1, 1.0, 10.0, 100.0, 1000.0)
FOLDS = 5


def by_ngrams(task: Task) -> list[str]:
    """The labels of the test texts by a logistic regression on their character n-grams, weighted by tf-idf."""
    features = TfidfVectorizer(analyzer="char", ngram_range=NGRAM_LENGTHS, sublinear_tf=True, lowercase=False)
    training, test = ([text for text, _ in part] for part in (task.training, task.test))
    return logistic_regression(task, training, test, features)


def most_frequent(task: Task) -> list[str]:
    """The label that most training texts have, for every test text."""
    labels = [label for _, label in task.training]
    return [max(task.labels, key=labels.count)] * len(task.test)


def scores(task: Task, guesses: Sequence[str]) -> Mapping[str, float]:
    """Accuracy, and F1 averaged over labels, of guesses for the test texts."""
    truth = [label for _, label in task.test]
    return {
        "accuracy": float(accuracy_score(truth, guesses)),
        "macro F1": float(f1_score(truth, guesses, average="macro", labels=task.labels, zero_division=0.0)),
    }


def logistic_regression(task: Task, training: Any, test: Any, features: Any = None) -> list[str]:
    """The labels of the test texts by a logistic regression on `features` of both parts; cross-validation on the
    training texts chooses the penalty. By default both parts are vectors `[n_texts, d_model]`.
    """
    model = make_pipeline(features or StandardScaler(), LogisticRegression(max_iter=5_000))
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    search = GridSearchCV(model, {"logisticregression__C": INVERSE_PENALTIES}, cv=folds)
    return list(search.fit(training, [label for _, label in task.training]).predict(test))
