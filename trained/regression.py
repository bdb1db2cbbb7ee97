"""Linear regressions on features, for all kinds of labels: one label per unit, several, or a number."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression, Ridge
from threadpoolctl import threadpool_limits
from torch import Tensor
from torch.nn import functional as F

from data.tasks.task import LABELS, NUMBER
from trained.examples import FOLDS, MANY_UNITS, NO_LABEL

LEAST_GAIN = 1e-4
# that readings are multiplied by
SCALES = tuple(2.0 ** (i / 2) for i in range(-12, 9))
MAX_COMPARED = 4_096  # units that candidates are compared on
# the least probability that counts, for labels that the other folds lack
UNSEEN = 1e-4
NEVER = -1e4  # the score of a label without examples
# the columns of the features that are read, and the inverse penalty
Candidate = tuple[np.ndarray, float]


def readings(kind: str, scores: Tensor) -> Tensor:
    """Scores `[n_units, n_labels]` as log-probabilities, or as log-odds of each of several labels,
    within the limits of `UNSEEN`; numbers as they are."""
    limit = -float(np.log(UNSEEN))
    scores = scores.double()
    if kind == NUMBER:
        return scores
    if kind == LABELS:
        return scores.clamp(-limit, limit)
    return scores.log_softmax(-1).clamp(min=-limit)


def losses_of(
    kind: str, scores: Tensor, target: Tensor, weights: Tensor | None = None
) -> Tensor:
    """The losses of scores `[..., n_labels]`, `[n_units]`: cross-entropy, or the squared error of
    numbers. Units of one label each count by the `weights` `[n_labels]` of their labels, and those
    with NO_LABEL not at all."""
    if kind == NUMBER:
        return (scores - target.view_as(scores)).square().squeeze(-1)
    if kind == LABELS:
        known = target.view_as(scores).to(scores.dtype)
        losses = F.binary_cross_entropy_with_logits(scores, known, reduction="none")
        return losses.mean(-1)
    return F.cross_entropy(
        scores.view(target.numel(), -1),
        target.flatten(),
        None if weights is None else weights.to(scores.dtype),
        ignore_index=NO_LABEL,
        reduction="none",
    )


def loss_of(
    kind: str, scores: Tensor, target: Tensor, weights: Tensor | None = None
) -> Tensor:
    """The mean of `losses_of` units that have labels."""
    losses = losses_of(kind, scores, target, weights)
    if kind in (NUMBER, LABELS):
        return losses.mean()
    return losses.sum() / (target != NO_LABEL).sum()


def nothing_known(kind: str, read: Tensor, labels: Tensor) -> Tensor:
    """The readings of one who knows nothing about the labels; of numbers, their mean."""
    if kind == NUMBER:
        return labels.double().mean().expand_as(read)
    return torch.zeros_like(read)


class Weight(NamedTuple):
    """How readings count beside others."""

    scale: float  # that they are multiplied by
    share: float  # in the mean of the scaled readings


def calibrated(
    kind: str, read: Tensor, labels: Tensor, weights: Tensor | None = None
) -> tuple[float, Weight]:
    """The loss of readings at the scale that suits them, and their weight.

    Fine-tuned models are too certain, which says nothing about the label that they prefer. The
    share is the part of the loss of `nothing_known` that they take away: readings that know little
    mostly repeat what others know.
    """
    losses = []
    for scale in SCALES if kind != NUMBER else (1.0,):
        losses.append((loss_of(kind, scale * read, labels, weights).item(), scale))
    loss, scale = min(losses)
    nothing = nothing_known(kind, read, labels)
    gain = 1 - loss / loss_of(kind, nothing, labels, weights).item()
    return loss, Weight(scale, max(gain, LEAST_GAIN))


def known_weight(
    kind: str, scores: Tensor, labels: Tensor, weights: Tensor | None = None
) -> Weight:
    """The weight of scores; 0 if a small step from `nothing_known` towards them does not lower the
    loss by more than two standard errors."""
    read = readings(kind, scores)
    nothing = nothing_known(kind, read, labels)
    step = nothing + SCALES[0] * (read - nothing)
    gain = losses_of(kind, nothing, labels, weights)
    gain = gain - losses_of(kind, step, labels, weights)
    if gain.mean() <= 2 * gain.std() / len(gain) ** 0.5:
        return Weight(1.0, 0.0)
    return calibrated(kind, read, labels, weights)[1]


class Regression:
    """A logistic regression, one per label if texts have several, or a ridge regression. Units of
    one label each count by the `weights` `[n_labels]` of their labels."""

    def __init__(self, kind: str, n_labels: int, weights: Tensor | None = None):
        self.kind = kind
        self.n_labels = n_labels
        self.weights = weights

    def best(
        self,
        features: Any,
        target: np.ndarray,
        fold: np.ndarray,
        choices: Sequence[np.ndarray],
        inverse_penalties: Sequence[float],
    ) -> Candidate:
        """The columns of `features` `[n_units, n_features]`, and the inverse penalty, that predict
        the `target` of a `fold` best from the other folds.

        The loss decides: the accuracy on few units has large steps, and often a tie.
        """
        folds = range(FOLDS if len(target) < MANY_UNITS else 1)
        step = -(-len(target) // MAX_COMPARED) | 1  # odd, so that all folds remain
        features = features[::step]
        target = target[::step]
        fold = fold[::step]
        losses = np.zeros((len(choices), len(inverse_penalties)))
        for i, columns in enumerate(choices):
            for left_out in folds:
                inner = fold != left_out
                if not inner.all():
                    losses[i] += self._losses(
                        features[:, columns], target, inner, inverse_penalties
                    )

        i, j = divmod(int(losses.argmin()), len(inverse_penalties))
        return choices[i], inverse_penalties[j]

    def _losses(
        self,
        features: Any,
        target: np.ndarray,
        inner: np.ndarray,
        inverse_penalties: Sequence[float],
    ) -> list[float]:
        """The loss on the units that are not `inner`, by regressions on those that are."""
        truth = torch.from_numpy(target[~inner])
        losses = []
        for scores in self._scores(features, target, inner, inverse_penalties):
            read = readings(self.kind, scores)
            losses.append(loss_of(self.kind, read, truth, self.weights).item())
        return losses

    def _scores(
        self,
        features: Any,
        target: np.ndarray,
        inner: np.ndarray,
        inverse_penalties: Sequence[float],
    ) -> Iterator[Tensor]:
        known, left_out, _ = in_span(features[inner], features[~inner])
        for c in inverse_penalties:
            weight, bias = self._solved(known, target[inner], c, tol=1e-3)
            yield torch.from_numpy(left_out @ weight.T + bias)

    def held_out(
        self, features: Any, target: np.ndarray, fold: np.ndarray, c: float
    ) -> tuple[Tensor, Tensor]:
        """The scores of units `[n_units, n_labels]`, each by a regression on the other folds, and
        their labels."""
        scores: list[Tensor] = []
        truth = []
        for left_out in range(FOLDS):
            inner = fold != left_out
            if not inner.all():
                scores += self._scores(features, target, inner, [c])
                truth.append(torch.from_numpy(target[~inner]))
        return torch.cat(scores), torch.cat(truth)

    def fitted(
        self, features: Any, target: np.ndarray, c: float, **options: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        """The weights `[n_labels, n_features]` and the biases `[n_labels]`."""
        known, _, basis = in_span(features, features[:0])
        weight, bias = self._solved(known, target, c, **options)
        return weight if basis is None else weight @ basis.T, bias

    # several threads would wait for each other at each of many small products
    @threadpool_limits.wrap(limits=1)
    def _solved(
        self, features: Any, target: np.ndarray, c: float, **options: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        if self.kind == NUMBER:
            ridge = Ridge(1 / c).fit(features, target[:, 0])
            return ridge.coef_[None], np.array([ridge.intercept_])
        if self.kind != LABELS:
            if self.weights is not None:
                options["class_weight"] = dict(enumerate(self.weights.tolist()))
            return logistic(features, target, self.n_labels, c, **options)
        weights = []
        biases = []
        for column in target.T.astype(int):
            weight, bias = logistic(features, column, 2, c, **options)
            weights.append(weight[1] - weight[0])
            biases.append(bias[1] - bias[0])
        return np.stack(weights), np.array(biases)


def logistic(
    features: Any, labels: np.ndarray, n_labels: int, c: float, **options: Any
) -> tuple[np.ndarray, np.ndarray]:
    """The weights and biases of a logistic regression; those of labels without examples are 0 and
    `NEVER`."""
    weight = np.zeros((n_labels, features.shape[1]))
    bias = np.full(n_labels, NEVER)
    if len(set(labels)) == 1:
        bias[labels[0]] = 0.0
        return weight, bias
    model = LogisticRegression(C=c, max_iter=1_000, **options).fit(features, labels)
    coefficients = model.coef_
    intercepts = model.intercept_
    if len(model.classes_) == 2:  # scikit-learn has one row for two labels
        coefficients = np.concatenate([-coefficients, coefficients]) / 2
        intercepts = np.array([-1, 1]) * intercepts / 2
    weight[model.classes_] = coefficients
    bias[model.classes_] = intercepts
    return weight, bias


def in_span(features: Any, others: Any) -> tuple[Any, Any, np.ndarray | None]:
    """Features and others `[n, n_features]` in the space that the features span, and its basis.

    A regression on fewer units than features has the same weights there, because the penalty keeps
    them in this space, and is faster. Otherwise, and for sparse features, nothing changes, and the
    basis is None.
    """
    n_units, n_features = features.shape
    if n_units >= n_features or not isinstance(features, np.ndarray):
        return features, others, None
    basis = np.linalg.qr(features.T)[0]  # [n_features, n_units]
    return features @ basis, others @ basis, basis
