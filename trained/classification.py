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
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from data.tasks.task import OF_TOKENS, PAIR
from trained.batches import padded
from trained.classifier import Classifier, features_of
from trained.examples import NO_LABEL, folds_of
from trained.regression import Regression, loss_of
from training.muon import CPU_HAS_BFLOAT16
from training.optimizers import adamw, gradients_of, set_learning_rate

BATCH_SIZE = 16
EPOCHS = 3
WARMUP = 0.1  # of the steps
WEIGHT_DECAY = 0.01
INVERSE_PENALTIES = (0.001, 0.01, 0.1, 1.0)  # of the probe; cross-validation chooses
MAX_CHARACTERS = 262_144  # whose features a probe computes
MAX_UNITS = 16_384  # that a probe is fitted on


def probed(
    classifier: Classifier,
    texts: Sequence[Tensor],
    labels: Sequence[Tensor],
    features: Tensor | None = None,
) -> Classifier:
    """Fit the linear layer of a classifier by a regression; its model is not changed. `features`
    are those of the texts, if they are known.

    Cross-validation on the labelled texts chooses the penalty, and which features the layer reads,
    unless `classifier.chosen` is set.
    """
    classifier.eval()
    if (
        classifier.kind in OF_TOKENS
    ):  # all features of many texts would not fit into memory
        step = -(-sum(map(len, texts)) // MAX_CHARACTERS)
        texts = texts[::step]
        labels = labels[::step]

    read = features_of(classifier, texts) if features is None else features
    if classifier.kind == PAIR:
        classifier.center.copy_(classifier.means(read).mean(0))
    target = torch.cat(list(labels)).numpy()
    has_label = target != NO_LABEL if target.ndim == 1 else np.ones(len(target))
    kept = np.flatnonzero(has_label)
    kept = kept[:: -(-len(kept) // MAX_UNITS) | 1]  # odd, so that all folds remain
    target = target[kept]
    inputs = classifier.inputs(read).numpy()[kept]
    mean = inputs.mean(0)
    scale = inputs.std(0)
    # fine-tuning may change a feature that hardly varies here
    scale = np.maximum(scale, 0.1 * scale.mean())
    inputs = (inputs - mean) / scale
    fold = folds_of(labels, classifier.kind)[kept]
    n_labels = classifier.output.out_features
    regression = Regression(classifier.kind, n_labels, classifier.weights)
    classifier.chosen = classifier.chosen or regression.best(
        inputs, target, fold, columns_of(classifier), INVERSE_PENALTIES
    )
    columns, c = classifier.chosen
    weight = np.zeros((n_labels, inputs.shape[1]))
    weight[:, columns], bias = regression.fitted(inputs[:, columns], target, c)
    weight /= scale
    bias = bias - weight @ mean

    with torch.no_grad():
        classifier.output.weight.copy_(torch.from_numpy(weight))
        classifier.output.bias.copy_(torch.from_numpy(bias))

    return classifier


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
    if classifier.kind not in OF_TOKENS:
        choices.append(every[2 * classifier.n_features :])

    return choices


def shuffled_batches(lengths: Tensor, generator: torch.Generator) -> list[Tensor]:
    """The numbers of all examples, in batches of similar `lengths` `[n_examples]`, which need
    little padding."""
    # of examples of equal length
    order = torch.randperm(len(lengths), generator=generator)
    batches = order[lengths[order].argsort(stable=True)].split(BATCH_SIZE)
    return [
        batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()
    ]


def in_bfloat16(d_model: int) -> torch.autocast:
    """Computes in bfloat16 where it is faster, as training.precision=auto does."""
    is_faster = CPU_HAS_BFLOAT16 and d_model >= 128
    # a cache would keep weights that fine-tuning has changed since
    return torch.autocast("cpu", torch.bfloat16, enabled=is_faster, cache_enabled=False)


def excerpt(text: Tensor, longest: int, generator: torch.Generator) -> Tensor:
    """A text of token ids; of one with more than `longest`, half as many from anywhere in it."""
    if len(text) <= longest:
        return text
    size = longest // 2
    begin = int(torch.randint(len(text) - size + 1, (1,), generator=generator))
    return text[begin : begin + size]


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
    linear layer stays. Of a text longer than a window, each step reads an `excerpt`.

    The `rates` are `learning_rate` and `table_learning_rate`, that of the n-gram table.
    """
    classifier = copy.deepcopy(classifier).train()
    classifier.output.requires_grad_(False)
    optimizers = adamw(classifier.model, **rates, weight_decay=WEIGHT_DECAY)
    generator = torch.Generator().manual_seed(seed)
    if classifier.kind in OF_TOKENS:
        texts, _ = classifier.windows_of(texts)
        labels, _ = classifier.windows_of(labels)
    epochs = max(EPOCHS, -(-n_steps * BATCH_SIZE // len(labels)))
    per_label = len(texts) // len(labels)  # 2 for pairs
    longest = classifier.longest or max(map(len, texts))
    lengths = torch.tensor([len(text) for text in texts])
    lengths[lengths > longest] = longest // 2
    lengths = lengths.view(-1, per_label).amax(1)
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
                some = texts[per_label * i : per_label * (i + 1)]
                read += [excerpt(text, longest, generator) for text in some]
            target = pad_sequence([labels[i] for i in batch], True, NO_LABEL)
            with in_bfloat16(classifier.d_model):
                scores = classifier(*padded(read))
                loss = loss_of(classifier.kind, scores, target, classifier.weights)

            loss.backward()
            gradients_of(classifier)  # coalesces those of tables
            for optimizer in optimizers:
                optimizer.step()
            classifier.zero_grad()

    return classifier.eval()
