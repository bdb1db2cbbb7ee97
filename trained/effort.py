"""Chooses on the labelled texts how a classifier is fine-tuned."""

import math
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from trained.classification import fine_tuned, probed
from trained.classifier import Classifier, scores_of
from trained.examples import example_folds
from trained.regression import Weight, calibrated, readings

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
FEW_EXAMPLES = 256


class Known(NamedTuple):
    """Labelled texts or pairs."""

    ids: Sequence[Tensor]  # of texts, two of a pair
    labels: Sequence[Tensor]
    features: Tensor | None  # of texts; None for labels of characters and words

    def part(self, kept: np.ndarray) -> "Known":
        """The texts or pairs `kept` `[len(labels)]`."""
        # both of a pair
        numbers = kept.repeat(len(self.ids) // len(kept)).nonzero()[0].tolist()
        ids = [self.ids[i] for i in numbers]
        labels = [self.labels[i] for i in kept.nonzero()[0].tolist()]
        features = None if self.features is None else self.features[numbers]
        return Known(ids, labels, features)


class Choice(NamedTuple):
    """The effort of a classifier, and the weight of its readings beside others."""

    effort: Effort
    weight: Weight

    def told(self) -> str:
        """How the labelled texts have decided."""
        rate = self.effort.get("learning_rate")
        return "frozen" if rate is None else f"trained at a rate of {rate:g}"


def tuned(probe: Classifier, known: Known, effort: Effort, seed: int) -> Classifier:
    """The classifier that a probe becomes with an effort."""
    if effort == FROZEN:
        return probe
    return fine_tuned(probe, known.ids, known.labels, **effort, seed=seed)


def chosen(
    probe: Classifier, known: Known, efforts: Sequence[Effort], seed: int
) -> Choice:
    """The effort with the lowest loss on labelled examples that were left out, one fold after the
    other, and its weight there. Of many examples, one fold of some decides.

    `probe` has learned from all that is `known`.
    """
    n = len(known.labels)
    if n > FEW_EXAMPLES:
        efforts = [effort for effort in efforts if effort != FROZEN]
    fold = example_folds(known.labels, probe.kind)
    some = np.arange(n) < MAX_EXAMPLES
    read: list[list[Tensor]] = [[] for _ in efforts]
    truth = []
    for left_out in range(2 if n <= FEW_EXAMPLES else 1):
        inner = known.part(some & (fold != left_out))
        outer = known.part(some & (fold == left_out))
        start = Classifier(
            probe.model, probe.output.out_features, probe.kind, probe.longest
        )
        start.chosen = probe.chosen
        start.weights = probe.weights
        start = probed(start, *inner)
        for each, effort in zip(read, efforts, strict=True):
            learned = tuned(start, inner, effort, seed)
            features = outer.features if effort == FROZEN else None
            scores = scores_of(learned, outer.ids, features)
            each.append(readings(probe.kind, scores))
        truth += outer.labels

    labels = torch.cat(truth)
    choices = []
    for each, effort in zip(read, efforts, strict=True):
        loss, weight = calibrated(probe.kind, torch.cat(each), labels, probe.weights)
        # a model that has diverged reads NaN, which `min` would return if it came first
        loss = math.inf if math.isnan(loss) else loss
        choices.append((loss, Choice(effort, weight)))

    return min(choices, key=itemgetter(0))[1]
