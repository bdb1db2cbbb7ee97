"""Classifiers that need no pretraining: logistic regressions on characters, and the most frequent label."""

import numpy as np
import torch
from scipy.sparse import csr_matrix, hstack, issparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from torch import Tensor

from trained.examples import NO_LABEL, Units

NGRAM_LENGTHS = (1, 5)
INVERSE_PENALTIES = (0.1, 1.0, 10.0, 100.0)
FOLDS = 4
REACH = 4  # characters on each side of one
OUTSIDE = "\0"  # of the text
MAX_CHARACTERS = 16_384  # that a regression is fitted on
NEVER = -1e9  # the score of a label without examples


def by_ngrams(labelled: Units, test: Units, n_labels: int) -> Tensor:
    """Scores `[n_texts, n_labels]` of texts, by their character n-grams weighted by tf-idf."""
    return _regression(_ngrams(), labelled.texts, labelled.all_labels.numpy(), test.texts, n_labels)


def by_ngrams_of_pairs(labelled: Units, test: Units, n_labels: int) -> Tensor:
    """Scores `[n_pairs, n_labels]` of pairs of texts, by the n-grams u and v of both: |u - v|, and their cosine."""
    vectors = _ngrams().fit(labelled.texts)

    def features(texts: list[str]) -> csr_matrix:
        first, second = vectors.transform(texts[0::2]), vectors.transform(texts[1::2])
        return hstack([abs(first - second), first.multiply(second).sum(1)]).tocsr()  # u and v have the norm 1

    labels = labelled.all_labels.numpy()
    return _regression("passthrough", features(labelled.texts), labels, features(test.texts), n_labels)


def _ngrams() -> TfidfVectorizer:
    return TfidfVectorizer(analyzer="char", ngram_range=NGRAM_LENGTHS, sublinear_tf=True, lowercase=False)


def by_context(labelled: Units, test: Units, n_labels: int) -> Tensor:
    """Scores `[n_characters, n_labels]` of characters, by the characters around each, one-hot."""
    labels = labelled.all_labels.numpy()
    kept = np.flatnonzero(labels != NO_LABEL)
    kept = kept[:: -(-len(kept) // MAX_CHARACTERS)]
    features = OneHotEncoder(handle_unknown="ignore", dtype=np.float32)
    return _regression(features, _contexts(labelled.texts)[kept], labels[kept], _contexts(test.texts), n_labels)


def by_frequency(labelled: Units, test: Units, n_labels: int) -> Tensor:
    """Scores `[n_units, n_labels]`: how often each label occurs."""
    labels = labelled.all_labels
    counts = labels[labels != NO_LABEL].bincount(minlength=n_labels).double()
    return counts.expand(len(test.all_labels), n_labels)


def _contexts(texts: list[str]) -> np.ndarray:
    """The characters at -4 to 4 of each character, `[n_characters, 9]`."""
    around = OUTSIDE * REACH
    padded = [np.array(list(around + text + around)) for text in texts]
    return np.concatenate([np.lib.stride_tricks.sliding_window_view(row, 2 * REACH + 1) for row in padded])


def _regression(features, labelled, labels: np.ndarray, test, n_labels: int) -> Tensor:  # type: ignore[no-untyped-def]
    """Scores by a logistic regression; cross-validation on the labelled units chooses the penalty."""
    n_test = test.shape[0] if issparse(test) else len(test)
    scores = torch.full((n_test, n_labels), NEVER, dtype=torch.float64)
    if len(set(labels)) < 2:
        scores[:, labels[0]] = 0.0
        return scores
    model = make_pipeline(features, LogisticRegression(max_iter=1_000))
    # Folds are not shuffled, so most units of a text are in one fold.
    search = GridSearchCV(model, {"logisticregression__C": INVERSE_PENALTIES}, cv=KFold(FOLDS), error_score=0.0)
    search.fit(labelled, labels)
    found = torch.from_numpy(search.decision_function(test)).double()
    scores[:, torch.from_numpy(search.classes_)] = torch.stack([-found, found], 1) if found.ndim == 1 else found
    return scores
