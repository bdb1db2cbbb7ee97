"""Chooses on the labelled texts how a classifier is fine-tuned, and how much n-grams count beside it."""

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from data.tasks.task import NUMBER, OF_TOKENS
from trained.baselines import by_ngrams
from trained.classification import fine_tuned, probed
from trained.classifier import Classifier, scores_of
from trained.examples import Units, example_folds
from trained.regression import loss_of, readings

# the learning rates of fine-tuning, and its least number of steps
Effort = dict[str, Any]
FROZEN: Effort = {}  # keeps the probe
GENTLE: Effort = {"learning_rate": 3e-4, "table_learning_rate": 0.0, "n_steps": 30}
STRONG: Effort = {"learning_rate": 2e-3, "table_learning_rate": 0.0, "n_steps": 60}
# the table is zero at first
UNTRAINED: Effort = {"learning_rate": 2e-3, "table_learning_rate": 1e-2, "n_steps": 60}
SLOW: Effort = {"learning_rate": 6e-4, "table_learning_rate": 3e-3, "n_steps": 60}
OF_PRETRAINED = (FROZEN, GENTLE, STRONG)
OF_UNTRAINED = (FROZEN, SLOW, UNTRAINED)
MAX_EXAMPLES = 512  # that efforts are compared on
# up to here two folds decide, and the probe may stay; from here on one
FEW_EXAMPLES = 128
# of the readings of the model and of the n-grams
OF_MODEL = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0)
OF_NGRAMS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
SHARES = tuple(product(OF_MODEL, OF_NGRAMS))[1:]


class Choice(NamedTuple):
    """The effort of a classifier, and the shares of its readings and those of n-grams."""

    kind: str
    effort: Effort
    shares: tuple[float, float] | None  # None for labels of characters and words

    def told(self) -> str:
        """How the labelled texts have decided."""
        rate = self.effort.get("learning_rate")
        how = "frozen" if rate is None else f"trained at a rate of {rate:g}"
        if self.shares is None:
            return how
        model, ngrams = self.shares
        return f"{how}; shares: model {model:g}, n-grams {ngrams:g}"

    def combined(self, scores: Tensor, ngrams: Tensor) -> Tensor:
        return mixed(
            readings(self.kind, scores), readings(self.kind, ngrams), self.shares
        )


def mixed(model: Tensor, ngrams: Tensor, shares: Any) -> Tensor:
    """The readings `[n_units, n_labels]` of both, weighted by their shares."""
    return shares[0] * model + shares[1] * ngrams


def calibrated_loss(
    kind: str, read: Tensor, labels: Tensor, weights: Tensor | None = None
) -> float:
    """The loss of readings at the scale that suits them: fine-tuned models are too certain, which
    says nothing about the label that they prefer."""
    scales = (1.0,) if kind == NUMBER else OF_MODEL[1:]
    return min(loss_of(kind, scale * read, labels, weights).item() for scale in scales)


def tuned(
    probe: Classifier,
    texts: Sequence[Tensor],
    labels: Sequence[Tensor],
    effort: Effort,
    seed: int,
) -> Classifier:
    """The classifier that a probe becomes with an effort."""
    if effort == FROZEN:
        return probe
    return fine_tuned(probe, texts, labels, **effort, seed=seed)


def chosen(
    probe: Classifier,
    labelled: Units,
    ids: Sequence[Tensor],
    efforts: Sequence[Effort],
    seed: int,
) -> Choice:
    """The effort, and the shares, with the lowest loss on labelled examples that were left out, one
    fold after the other. Of many examples, one fold of some decides.

    `ids` are those of the labelled texts, and `probe` has learned from all of them.
    """
    n = len(labelled.labels)
    if n > FEW_EXAMPLES:
        efforts = [effort for effort in efforts if effort != FROZEN]
    fold = example_folds(labelled.labels, labelled.kind)
    folds = range(2 if n <= FEW_EXAMPLES else 1)
    some = np.arange(n) < MAX_EXAMPLES
    of_efforts: list[list[Tensor]] = [[] for _ in efforts]
    of_ngrams = []
    truth = []
    for left_out in folds:
        inner = part_of(labelled, ids, some & (fold != left_out))
        outer = part_of(labelled, ids, some & (fold == left_out))
        start = Classifier(
            probe.model, probe.output.out_features, probe.kind, probe.longest
        )
        start.chosen = probe.chosen
        start.weights = probe.weights
        start = probed(start, inner.ids, inner.units.labels)
        for scores, effort in zip(of_efforts, efforts, strict=True):
            learned = tuned(start, inner.ids, inner.units.labels, effort, seed)
            scores.append(readings(probe.kind, scores_of(learned, outer.ids)))
        truth.append(outer.units.all_labels)
        if labelled.kind not in OF_TOKENS:
            n_labels = probe.output.out_features
            scores = by_ngrams(inner.units, outer.units, n_labels, probe.weights)
            of_ngrams.append(readings(probe.kind, scores))

    labels = torch.cat(truth)

    def loss(read: Tensor) -> float:
        return loss_of(probe.kind, read, labels, probe.weights).item()

    def loss_of_effort(i: int) -> float:
        return calibrated_loss(
            probe.kind, torch.cat(of_efforts[i]), labels, probe.weights
        )

    best = min(range(len(efforts)), key=loss_of_effort)
    if not of_ngrams:
        return Choice(probe.kind, efforts[best], None)
    model = torch.cat(of_efforts[best])
    ngrams = torch.cat(of_ngrams)
    candidates = SHARES
    if probe.kind == NUMBER:
        candidates = tuple(shares for shares in SHARES if sum(shares) == 1)
    shares = min(candidates, key=lambda shares: loss(mixed(model, ngrams, shares)))

    return Choice(probe.kind, efforts[best], shares)


class Part(NamedTuple):
    units: Units
    ids: list[Tensor]


def part_of(labelled: Units, ids: Sequence[Tensor], kept: np.ndarray) -> Part:
    """The texts or pairs `kept` `[len(labels)]`, with their token ids."""
    numbers = kept.repeat(len(ids) // len(kept)).nonzero()[0].tolist()  # two of a pair
    texts = [labelled.texts[i] for i in numbers]
    labels = [labelled.labels[i] for i in kept.nonzero()[0].tolist()]

    return Part(Units(texts, labels, labelled.kind), [ids[i] for i in numbers])
