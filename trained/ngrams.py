"""A classifier of texts by their character n-grams, alone and beside a model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from torch import Tensor

from data.tasks.task import PAIR
from trained.examples import Units, folds_of
from trained.regression import Regression, Weight, known_weight, readings

LENGTHS = (1, 5)
INVERSE_PENALTIES = (0.1, 1.0, 10.0, 100.0)
FEW_UNITS = 2_048  # above it, the products of all pairs cost more time than they save


@dataclass(frozen=True)
class Ngrams:
    """A regression on the character n-grams of texts, weighted by tf-idf; of pairs, on the n-grams
    u and v of both texts: |u - v|, and their cosine."""

    kind: str  # of the task
    vectorizer: TfidfVectorizer
    weight: Tensor  # [n_labels, n_features]
    bias: Tensor  # [n_labels]
    own: Weight  # of its readings beside those of a model

    def scores(self, texts: Sequence[str]) -> Tensor:
        """Scores `[n_units, n_labels]` of texts, or of pairs: texts 0 and 1, 2 and 3, ...."""
        features = features_of(self.kind, self.vectorizer.transform(texts))
        return torch.from_numpy(features @ self.weight.T.numpy()) + self.bias

    def beside(self, model: Tensor, weight: Weight, scores: Tensor) -> Tensor:
        """The `scores` of n-grams and those of a `model` `[n_units, n_labels]` together: the mean of
        their scaled readings, weighted by their shares."""
        total = weight.share * weight.scale * readings(self.kind, model)
        total = total + self.own.share * self.own.scale * readings(self.kind, scores)
        return total / (weight.share + self.own.share)

    def state(self) -> dict[str, Any]:
        """The content of a saved classifier's `ngrams`."""
        return {
            "names": self.vectorizer.get_feature_names_out().tolist(),
            "idf": torch.from_numpy(self.vectorizer.idf_),
            "weight": self.weight,
            "bias": self.bias,
            "own": self.own,
        }


def of_state(kind: str, state: dict[str, Any]) -> Ngrams:
    """What `state` returned, as it was."""
    vectorizer = vectorizer_of(state["names"])
    vectorizer.idf_ = state["idf"].numpy()
    return Ngrams(
        kind, vectorizer, state["weight"], state["bias"], Weight(*state["own"])
    )


def vectorizer_of(names: Sequence[str] | None = None) -> TfidfVectorizer:
    return TfidfVectorizer(
        analyzer="char",
        ngram_range=LENGTHS,
        sublinear_tf=True,
        lowercase=False,
        vocabulary=names,
    )


def by_ngrams(labelled: Units, n_labels: int, weights: Tensor | None = None) -> Ngrams:
    """The n-grams of labelled texts or pairs. Cross-validation chooses the penalty and the weight.
    Labels may have `weights` `[n_labels]`."""
    vectorizer = vectorizer_of()
    kind = labelled.kind
    features = features_of(kind, vectorizer.fit_transform(labelled.texts))
    known, axes = in_few_dimensions(features)
    target = labelled.all_labels.numpy()
    fold = folds_of(labelled.labels, kind)
    regression = Regression(kind, n_labels, weights)
    every = np.arange(known.shape[1])
    _, c = regression.best(known, target, fold, [every], INVERSE_PENALTIES)
    own = known_weight(kind, *regression.held_out(known, target, fold, c), weights)
    weight, bias = regression.fitted(known, target, c)
    if axes is not None:
        weight = (features.T @ (axes @ weight.T)).T

    return Ngrams(
        kind, vectorizer, torch.from_numpy(weight), torch.from_numpy(bias), own
    )


def features_of(kind: str, vectors: csr_matrix) -> csr_matrix:
    """The features of texts or pairs, `[n_units, n_features]`, for the vectors of texts."""
    if kind != PAIR:
        return vectors
    first = vectors[0::2]
    second = vectors[1::2]
    # u and v have the norm 1
    return hstack([abs(first - second), first.multiply(second).sum(1)]).tocsr()


def in_few_dimensions(features: csr_matrix) -> tuple[Any, np.ndarray | None]:
    """Features in coordinates of the space that they span, and its axes as combinations of units
    `[n_units, n_axes]`; if they are many, features as they are, and None.

    The weights of a regression with an L2 penalty lie in this space, so its scores are the same up
    to the solver's tolerance, in less time.
    """
    if features.shape[0] > FEW_UNITS:
        return features, None
    products = (features @ features.T).toarray()
    values, vectors = np.linalg.eigh(products)
    kept = values > 1e-9 * values[-1]
    axes = vectors[:, kept] / np.sqrt(values[kept])

    return products @ axes, axes
