"""Classifiers of characters and words by those around them, and the most frequent label."""

import numpy as np
import torch
from sklearn.preprocessing import OneHotEncoder
from torch import Tensor

from data.tasks.task import LABELS, WORDS
from trained.examples import NO_LABEL, Units, folds_of
from trained.regression import Regression

INVERSE_PENALTIES = (0.1, 1.0, 10.0, 100.0)
REACH = 4  # characters on each side of one
REACH_OF_WORDS = 2
LONGEST_AFFIX = 3  # characters at the beginning and at the end of a word
OUTSIDE = "\0"  # of the text
MAX_CHARACTERS = 16_384  # that a regression is fitted on


def by_context(
    labelled: Units, test: Units, n_labels: int, weights: Tensor | None = None
) -> Tensor:
    """Scores `[n_units, n_labels]` of characters or words, by what stands around each, one-hot."""
    labels = labelled.all_labels.numpy()
    kept = np.flatnonzero(labels != NO_LABEL)
    kept = kept[:: -(-len(kept) // MAX_CHARACTERS)]
    contexts = _contexts(labelled)[kept]
    features = OneHotEncoder(handle_unknown="ignore", dtype=np.float32)
    known = features.fit_transform(contexts)
    fold = folds_of(labelled.labels, labelled.kind)[kept]
    regression = Regression(labelled.kind, n_labels, weights)
    every = np.arange(known.shape[1])
    _, c = regression.best(known, labels[kept], fold, [every], INVERSE_PENALTIES)
    weight, bias = regression.fitted(known, labels[kept], c)

    return torch.from_numpy(features.transform(_contexts(test)) @ weight.T + bias)


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
