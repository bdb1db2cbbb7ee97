"""Learns classifiers from labels: with a frozen encoder (a probe), or fine-tuned.

Fine-tuning keeps the probe's layer (Kumar et al. 2022, who train it further) and trains the encoder
below. The layer reads thousands of features. If it is trained too, it starts to read those that the
probe left out.
"""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from data.tasks.task import CHARACTER, PAIR
from trained.batches import padded
from trained.classifier import Classifier, features_of
from trained.examples import FOLDS, MANY_UNITS, NO_LABEL, folds_of
from training.muon import CPU_HAS_BFLOAT16
from training.optimizers import adamw, gradients_of, set_learning_rate

BATCH_SIZE = 16
EPOCHS = 3
WARMUP = 0.1  # of the steps
WEIGHT_DECAY = 0.01
INVERSE_PENALTIES = (0.001, 0.01, 0.1, 1.0)  # of the probe; cross-validation chooses
MAX_WINDOWS = 8  # of a long text, that one step of fine-tuning reads
MAX_CHARACTERS = 262_144  # whose features a probe computes
# that a probe is fitted on, and that its candidates are compared on
MAX_UNITS = 16_384
MAX_COMPARED = 4_096
# the least probability that cross-validation counts, for labels that the other folds lack
UNSEEN = 1e-4
NEVER = -1e4  # the score of a label without examples
Candidate = tuple[
    np.ndarray, float
]  # the inputs that a probe may read, and its inverse penalty


def probed(
    classifier: Classifier, texts: Sequence[Tensor], labels: Sequence[Tensor]
) -> Classifier:
    """Fit the linear layer of a classifier by logistic regression; its model is not changed.

    Cross-validation on the labelled texts chooses the penalty, and which features the layer reads,
    unless `classifier.chosen` is set.
    """
    classifier.eval()
    if (
        classifier.kind == CHARACTER
    ):  # all features of many texts would not fit into memory
        step = -(-sum(map(len, texts)) // MAX_CHARACTERS)
        texts = texts[::step]
        labels = labels[::step]

    read = features_of(classifier, texts)
    if classifier.kind == PAIR:
        classifier.center.copy_(classifier.means(read).mean(0))
    target = torch.cat(list(labels)).numpy()
    kept = np.flatnonzero(target != NO_LABEL)
    kept = kept[:: -(-len(kept) // MAX_UNITS) | 1]  # odd, so that all folds remain
    target = target[kept]
    features = classifier.inputs(read).numpy()[kept]
    mean = features.mean(0)
    scale = features.std(0)
    # fine-tuning may change a feature that hardly varies here
    scale = np.maximum(scale, 0.1 * scale.mean())
    features = (features - mean) / scale
    weight = np.zeros((classifier.output.out_features, features.shape[1]))
    bias = np.full(len(weight), NEVER)
    if len(set(target)) > 1:
        fold = folds_of(labels, classifier.kind)[kept]
        classifier.chosen = classifier.chosen or best_candidate(
            features, target, fold, columns_of(classifier)
        )
        columns, c = classifier.chosen
        model = fitted(features[:, columns], target, c)
        coefficients = model.coef_
        intercepts = model.intercept_
        if len(model.classes_) == 2:  # scikit-learn has one row for two labels
            coefficients = np.concatenate([-coefficients, coefficients]) / 2
            intercepts = np.array([-1, 1]) * intercepts / 2
        weight[np.ix_(model.classes_, classifier.chosen[0])] = coefficients
        bias[model.classes_] = intercepts
        weight /= scale
        bias -= weight @ mean
    else:
        bias[target[0]] = 0.0

    with torch.no_grad():
        classifier.output.weight.copy_(torch.from_numpy(weight))
        classifier.output.bias.copy_(torch.from_numpy(bias))

    return classifier


def best_candidate(
    features: np.ndarray,
    target: np.ndarray,
    fold: np.ndarray,
    choices: Sequence[np.ndarray],
) -> Candidate:
    """The columns of `features` `[n_units, n_features]`, and the inverse penalty, that predict the
    labels `target` of a `fold` best from the other folds.

    The log-likelihood decides: the accuracy on few units has large steps, and often a tie.
    """
    folds = range(FOLDS if len(target) < MANY_UNITS else 1)
    step = -(-len(target) // MAX_COMPARED) | 1  # odd, so that all folds remain
    features = features[::step]
    target = target[::step]
    fold = fold[::step]
    totals = np.zeros((len(choices), len(INVERSE_PENALTIES)))
    for i, columns in enumerate(choices):
        for left_out in folds:
            inner = fold != left_out
            if not inner.all() and len(set(target[inner])) > 1:
                totals[i] += log_likelihoods(features[:, columns], target, inner)

    i, j = divmod(int(totals.argmax()), len(INVERSE_PENALTIES))
    return choices[i], INVERSE_PENALTIES[j]


# several threads would wait for each other at each of many small products
@threadpool_limits.wrap(limits=1)
def log_likelihoods(
    features: np.ndarray, target: np.ndarray, inner: np.ndarray
) -> list[float]:
    """The mean log-likelihood of the labels that are not `inner`, by regressions on those that are,
    for each inverse penalty."""
    known, left_out, _ = in_span(features[inner], features[~inner])
    labels = target[~inner]
    model = LogisticRegression(max_iter=1_000, tol=1e-3, warm_start=True)
    means = []
    for c in INVERSE_PENALTIES:
        model.set_params(C=c).fit(known, target[inner])
        probabilities = np.zeros((len(labels), target.max() + 1))
        probabilities[:, model.classes_] = model.predict_proba(left_out)
        of_labels = probabilities[np.arange(len(labels)), labels]
        means.append(float(np.log(np.maximum(of_labels, UNSEEN)).mean()))

    return means


def in_span(
    features: np.ndarray, others: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Features and others `[n, n_features]` in the space that the features span, and its basis.

    A regression on fewer units than features has the same weights there, because the penalty keeps
    them in this space, and is faster. Otherwise nothing changes, and the basis is None.
    """
    n_units, n_features = features.shape
    if n_units >= n_features:
        return features, others, None
    basis = np.linalg.qr(features.T)[0]  # [n_features, n_units]
    return features @ basis, others @ basis, basis


@threadpool_limits.wrap(limits=1)
def fitted(
    features: np.ndarray, labels: np.ndarray, c: float, **options: Any
) -> LogisticRegression:
    """A logistic regression on features `[n_units, n_features]`."""
    model = LogisticRegression(C=c, max_iter=1_000, **options)
    known, _, basis = in_span(features, features[:0])
    model.fit(known, labels)
    if basis is not None:
        model.coef_ = model.coef_ @ basis.T
        model.n_features_in_ = len(basis)

    return model


def columns_of(classifier: Classifier) -> list[np.ndarray]:
    """The inputs of the linear layer that a probe may read. Of characters: all, the last layer, or
    the surprise and the log-probabilities. Of texts: also the first character alone. Of pairs: the
    cosines, or all. With many tokens: all, or the last layer."""
    every = np.arange(classifier.output.in_features)
    if classifier.kind == PAIR:
        return [every[: classifier.n_layers], every]
    layer = every % classifier.n_features // classifier.d_model
    last_layer = every[layer == classifier.n_layers - 1]
    choices = [every, last_layer]
    if not classifier.reads_surprise:
        return choices
    choices.append(every[layer >= classifier.n_layers])
    if classifier.kind != CHARACTER:
        choices.append(every[2 * classifier.n_features :])

    return choices


def shuffled_batches(lengths: Tensor, generator: torch.Generator) -> list[Tensor]:
    """The numbers of all examples, in batches of similar `lengths` `[n_examples]`, which need
    little padding."""
    order = torch.randperm(
        len(lengths), generator=generator
    )  # of examples of equal length
    batches = order[lengths[order].argsort(stable=True)].split(BATCH_SIZE)
    return [
        batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()
    ]


def scores_in_training(classifier: Classifier, texts: Sequence[Tensor]) -> Tensor:
    """The scores of a batch of texts, of which some windows are read."""
    windows, counts = classifier.windows_of(texts, MAX_WINDOWS)
    features = classifier.features(*padded(windows))
    if classifier.kind != CHARACTER:
        features = classifier.together(features, windows, counts)
    return classifier.output(classifier.inputs(features))


def fine_tuned(
    classifier: Classifier,
    texts: Sequence[Tensor],
    labels: Sequence[Tensor],
    *,
    n_steps: int,
    seed: int,
    **rates: Any,
) -> Classifier:
    """A copy of a classifier whose model is trained on labelled texts in at least `n_steps`. Its
    linear layer stays.

    The `rates` are `learning_rate` and `table_learning_rate`, that of the n-gram table.
    """
    classifier = copy.deepcopy(classifier).train()
    classifier.output.requires_grad_(False)
    optimizers = adamw(classifier.model, **rates, weight_decay=WEIGHT_DECAY)
    in_bfloat16 = (
        CPU_HAS_BFLOAT16 and classifier.d_model >= 128
    )  # as for training.precision=auto
    generator = torch.Generator().manual_seed(seed)
    if classifier.kind == CHARACTER:
        texts, _ = classifier.windows_of(texts)
        labels, _ = classifier.windows_of(labels)
    epochs = max(EPOCHS, -(-n_steps * BATCH_SIZE // len(labels)))
    per_label = len(texts) // len(labels)  # 2 for pairs
    lengths = torch.tensor([len(text) for text in texts]).view(-1, per_label).amax(1)
    batches = [
        batch for _ in range(epochs) for batch in shuffled_batches(lengths, generator)
    ]
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)  # for dropout
        for number, batch in enumerate(batches):
            progress = number / len(batches)
            warmed_up = (number + 1) / len(batches) / WARMUP
            set_learning_rate(optimizers, min(warmed_up, (1 - progress) / (1 - WARMUP)))
            read: list[Tensor] = []
            for i in batch:
                read += texts[per_label * i : per_label * (i + 1)]
            target = pad_sequence([labels[i] for i in batch], True, NO_LABEL)
            with torch.autocast("cpu", torch.bfloat16, enabled=in_bfloat16):
                scores = scores_in_training(classifier, read).view(target.numel(), -1)
                loss = F.cross_entropy(scores, target.flatten(), ignore_index=NO_LABEL)

            loss.backward()
            gradients_of(classifier)  # coalesces those of tables
            for optimizer in optimizers:
                optimizer.step()
            classifier.zero_grad()

    return classifier.eval()
