"""Classifiers that need no pretraining: logistic regressions on characters, and the most frequent
label."""

import warnings
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix, hstack
from sklearn.exceptions import FitFailedWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.preprocessing import OneHotEncoder
from threadpoolctl import threadpool_limits
from torch import Tensor

from data.tasks.task import LABELS, PAIR, WORDS
from trained.examples import MANY_UNITS, NO_LABEL, Units, folds_of
from trained.regression import Regression

NGRAM_LENGTHS = (1, 5)
INVERSE_PENALTIES = (0.1, 1.0, 10.0, 100.0)
REACH = 4  # characters on each side of one
REACH_OF_WORDS = 2
LONGEST_AFFIX = 3  # characters at the beginning and at the end of a word
OUTSIDE = "\0"  # of the text
FEW_UNITS = 2_048  # above it, the products of all pairs cost more time than they save
MAX_CHARACTERS = 16_384  # that a regression is fitted on
NEVER = -1e9  # the score of a label without examples


def by_ngrams(
    labelled: Units, test: Units, n_labels: int, weights: Tensor | None = None
) -> Tensor:
    """Scores `[n_units, n_labels]` of texts, by their character n-grams weighted by tf-idf; of
    pairs, by the n-grams u and v of both texts: |u - v|, and their cosine. Labels may have
    `weights` `[n_labels]`."""
    ngrams = TfidfVectorizer(
        analyzer="char", ngram_range=NGRAM_LENGTHS, sublinear_tf=True, lowercase=False
    )
    ngrams.fit(labelled.texts)

    def features(units: Units) -> csr_matrix:
        vectors = ngrams.transform(units.texts)
        if units.kind != PAIR:
            return vectors
        first = vectors[0::2]
        second = vectors[1::2]

        # u and v have the norm 1
        return hstack([abs(first - second), first.multiply(second).sum(1)]).tocsr()

    known, tested = in_few_dimensions(features(labelled), features(test))

    labels = labelled.all_labels.numpy()
    fold = folds_of(labelled.labels, labelled.kind)
    regression = Regression(labelled.kind, n_labels, weights)

    return _scores(regression, known, tested, labels, fold)


def by_context(
    labelled: Units, test: Units, n_labels: int, weights: Tensor | None = None
) -> Tensor:
    """Scores `[n_units, n_labels]` of characters or words, by what stands around each, one-hot."""
    labels = labelled.all_labels.numpy()
    kept = np.flatnonzero(labels != NO_LABEL)
    kept = kept[:: -(-len(kept) // MAX_CHARACTERS)]
    contexts = _contexts(labelled)[kept]
    features = OneHotEncoder(handle_unknown="ignore", dtype=np.float32).fit(contexts)
    tested = features.transform(_contexts(test))

    known = features.transform(contexts)
    fold = folds_of(labelled.labels, labelled.kind)[kept]
    regression = Regression(labelled.kind, n_labels, weights)

    return _scores(regression, known, tested, labels[kept], fold)


def by_frequency(labelled: Units, test: Units, n_labels: int) -> Tensor:
    """Scores `[n_units, n_labels]`: how often each label occurs; of several labels per text, the
    log-odds; of numbers, the mean."""
    labels = labelled.all_labels
    if labels.ndim == 2:
        mean = labels.double().mean(0)
        return (mean.logit() if labelled.kind == LABELS else mean).expand(
            len(test.labels), n_labels
        )
    counts = labels[labels != NO_LABEL].bincount(minlength=n_labels).double()
    return counts.expand(len(test.all_labels), n_labels)


def _contexts(units: Units) -> np.ndarray:
    """The characters at -4 to 4 of each character, `[n_units, 9]`. Of words, those at -2 to 2, and
    the first and the last one to three characters of each, `[n_units, 11]`."""
    if units.kind == WORDS:
        return np.concatenate([_of_words(text.split()) for text in units.texts])
    characters = [np.array(list(text)) for text in units.texts]
    return np.concatenate([_around(each, REACH) for each in characters])


def _of_words(words: list[str]) -> np.ndarray:
    parts = [_around(np.array(words, dtype=object), REACH_OF_WORDS)]
    for n in range(1, LONGEST_AFFIX + 1):
        affixes = [[word[:n], word[-n:]] for word in words]
        parts.append(np.array(affixes, dtype=object))
    return np.hstack(parts)


def _around(parts: np.ndarray, reach: int) -> np.ndarray:
    """The parts of a text `[n]` at -`reach` to `reach` of each one, `[n, 2 * reach + 1]`."""
    padded = np.pad(parts, reach, constant_values=OUTSIDE)
    return np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1)


def in_few_dimensions(labelled: csr_matrix, test: csr_matrix) -> tuple[Any, Any]:
    """Both in coordinates of the space that the labelled rows span, if these are few.

    The weights of a regression with an L2 penalty lie in this space, so its scores are the same up
    to the solver's tolerance, in less time.
    """
    if labelled.shape[0] > FEW_UNITS:
        return labelled, test
    products = (labelled @ labelled.T).toarray()
    values, vectors = np.linalg.eigh(products)
    kept = values > 1e-9 * values[-1]
    axes = vectors[:, kept] / np.sqrt(values[kept])

    return products @ axes, test @ labelled.T @ axes


def _scores(
    regression: Regression,
    known: Any,
    tested: Any,
    labels: np.ndarray,
    fold: np.ndarray,
) -> Tensor:
    """Scores of what is `tested` by a regression on what is `known`: the loss chooses its penalty,
    or the accuracy, if units have one label each and all units count the same."""
    if labels.ndim == 1 and regression.weights is None:
        return _regression(known, tested, labels, fold, regression.n_labels)
    every = np.arange(known.shape[1])
    _, c = regression.best(known, labels, fold, [every], INVERSE_PENALTIES)
    weight, bias = regression.fitted(known, labels, c)

    return torch.from_numpy(tested @ weight.T + bias)


# several threads would wait for each other at each of many small products
@threadpool_limits.wrap(limits=1)
def _regression(
    labelled: Any, test: Any, labels: np.ndarray, fold: np.ndarray, n_labels: int
) -> Tensor:
    """Scores by a logistic regression; cross-validation over the folds of the labelled units chooses
    the penalty."""
    scores = torch.full((test.shape[0], n_labels), NEVER, dtype=torch.float64)
    if len(set(labels)) < 2:
        scores[:, labels[0]] = 0.0
        return scores

    model = LogisticRegression(max_iter=1_000)
    if len(labels) >= MANY_UNITS:
        fold = np.where(fold == 0, 0, -1)  # others are never left out
    parts = PredefinedSplit(fold)
    search = GridSearchCV(model, {"C": INVERSE_PENALTIES}, cv=parts, error_score=0.0)
    # the other folds may have one label only
    with warnings.catch_warnings(action="ignore", category=FitFailedWarning):
        search.fit(labelled, labels)
    of_classes = torch.from_numpy(search.decision_function(test)).double()
    if of_classes.ndim == 1:  # two labels
        of_classes = torch.stack([-of_classes, of_classes], 1)
    scores[:, torch.from_numpy(search.classes_)] = of_classes

    return scores
