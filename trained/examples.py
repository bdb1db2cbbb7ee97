"""The examples of a task as token ids and numbers of labels, and which of a classifier's scores are
right."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from data.tasks.task import (
    CHOICE,
    LABELS,
    NUMBER,
    OF_TOKENS,
    PAIR,
    TEXT,
    WORDS,
    Example,
    Labels,
    Task,
)
from data.vocabulary import Vocabulary
from trained.load import Trained

NO_LABEL = -100
FOLDS = 4  # of the labelled texts, for cross-validation
MANY_UNITS = 500  # from here on one fold is enough
# the labels of a choice: each of its texts is an example of its own
CHOICE_LABELS = ["wrong", "right"]
ACCURACY = "accuracy"
MEAN_RECALL = "mean recall over labels"
WORD = re.compile(r"\s*\S+")  # with the white space before it


class Units(NamedTuple):
    """The units of a classification: texts, pairs of texts, or the characters or words of texts."""

    texts: list[str]  # two per pair, one after the other
    # one per text or pair: `[1]`, or `[length]` for characters and words, NO_LABEL where there is
    # none; a number is `[1, 1]`, and several labels are `[1, n_labels]`, each 0 or 1
    labels: list[Tensor]
    kind: str  # of the task

    @property
    def all_labels(self) -> Tensor:
        """`[n_units]`, or `[n_texts, n_labels]`."""
        return torch.cat(self.labels)


def example_folds(labels: Sequence[Tensor], kind: str) -> np.ndarray:
    """The fold of each text or pair, `[len(labels)]`, for `labels` of examples in random order.

    Each fold has an equal share of the examples of each label; of labels of characters or words and
    of choices, an equal share of the examples. Both texts of a choice are in one fold.
    """
    if kind in (TEXT, PAIR):
        order = torch.cat(list(labels)).argsort(stable=True)
        return (order.argsort() % FOLDS).numpy()
    return np.arange(len(labels)) // (2 if kind == CHOICE else 1) % FOLDS


def folds_of(labels: Sequence[Tensor], kind: str) -> np.ndarray:
    """The fold of each unit, `[n_units]`."""
    return example_folds(labels, kind).repeat([len(each) for each in labels])


def label_names(task: Task) -> list[str]:
    """The names that the numbers of labels stand for; a number has one score."""
    names = {CHOICE: CHOICE_LABELS, NUMBER: [NUMBER]}
    return names.get(task.kind) or task.labels


def units(task: Task, examples: Sequence[Example]) -> Units:
    """The units of examples."""
    number = {label: i for i, label in enumerate(label_names(task))}
    texts: list[str] = []
    labels: list[Tensor] = []
    for example in examples:
        texts += example.texts
        labels += targets_of(task.kind, example, number)

    return Units(texts, labels, task.kind)


def targets_of(kind: str, example: Example, number: dict[str, int]) -> list[Tensor]:
    """The `labels` of `Units` that an example has; `number` are the numbers of labels."""
    if kind == CHOICE:
        return [torch.tensor([number["right"]]), torch.tensor([number["wrong"]])]
    if kind == NUMBER:
        return [torch.tensor([[float(str(example.label))]])]
    if kind == LABELS:
        return [torch.tensor([[float(name in example.label) for name in number]])]
    names: Labels = example.label if kind in OF_TOKENS else [str(example.label)]
    return [torch.tensor([number.get(name or "", NO_LABEL) for name in names])]


def measure_of(task: Task) -> str:
    """The name of the score."""
    measures = {NUMBER: "R^2", LABELS: "F1 of a text", CHOICE: ACCURACY}
    return measures.get(task.kind, MEAN_RECALL if task.balanced else ACCURACY)


def balancing(labels: Tensor, n_labels: int) -> Tensor:
    """The weight of each label, `[n_labels]`, with which all labels of units `[n_units]` count the
    same; the mean over units is 1."""
    counts = labels[labels != NO_LABEL].bincount(minlength=n_labels).double()
    n_given = (counts > 0).sum()
    return torch.where(counts > 0, counts.sum() / n_given / counts, 0.0)


def accuracies(task: Task, scores: Tensor, test: Units) -> tuple[Tensor, Tensor]:
    """The numbers of right and of all answers per example, both `[n_examples]`. Equal scores of a
    choice are wrong; of numbers and of several labels, `shares_of` a text are right. If the task is
    balanced, answers have weights, so that the share of right ones is the mean recall over labels.
    """
    if task.kind in (NUMBER, LABELS):
        right = shares_of(task.kind, scores, test.all_labels.double())
        return right, torch.ones_like(right)
    if task.kind == CHOICE:
        right = (scores[0::2, 1] > scores[1::2, 1]).double()
        return right, torch.ones_like(right)

    labels = test.all_labels
    example = torch.repeat_interleave(torch.tensor([len(each) for each in test.labels]))
    counts = (labels != NO_LABEL).double()
    if task.balanced:
        counts *= balancing(labels, scores.shape[1])[labels.clamp(min=0)]
    right = (scores.argmax(1) == labels) * counts
    n = len(test.labels)

    return torch.bincount(example, right, n), torch.bincount(example, counts, n)


def shares_of(kind: str, scores: Tensor, truth: Tensor) -> Tensor:
    """How far texts are right, `[n_texts]`: with several labels, their F1, which is 1 if there are
    none; with a number, 1 - error^2 / variance, whose mean is R^2."""
    if kind == NUMBER:
        squares = (scores - truth).square().squeeze(1)
        return 1 - squares / truth.var(correction=0)
    predicted = (scores > 0).double()
    n = predicted.sum(1) + truth.sum(1)
    common = (predicted * truth).sum(1)
    return torch.where(n == 0, 1.0, 2 * common / n.clamp(min=1))


def n_long(texts: Sequence[str], trained: Trained) -> int:
    """How many texts have more tokens than the windows of training."""
    encode = str if trained.vocabulary.is_characters else trained.vocabulary.encode
    return sum(len(encode(text)) > trained.longest for text in texts)


def n_unknown(texts: Sequence[str], vocabulary: Vocabulary) -> int:
    """How many characters of the texts have no token of their own."""
    return sum(vocabulary.lost("\n".join(texts)))


def token_ids(texts: Sequence[str], trained: Trained) -> list[Tensor]:
    """Token ids of each text; for a text without tokens, `[MASK]`.

    Characters that the run does not know become `[UNK]` if the run has it, otherwise `[MASK]`.
    """
    vocabulary = trained.vocabulary
    unknown_token = vocabulary.unknown_token
    if unknown_token is None:
        unknown_token = vocabulary.mask_token
    id_of = {character: i for i, character in enumerate(vocabulary.ordinary)}
    all_ids = []
    for text in texts:
        if vocabulary.is_characters:
            ids = torch.tensor([id_of.get(c, unknown_token) for c in text])
        else:
            ids = vocabulary.encode(text)

        all_ids.append(ids if len(ids) else torch.tensor([vocabulary.mask_token]))

    return all_ids


class Reading(NamedTuple):
    """Texts as a model reads them."""

    ids: list[Tensor]
    # of words: the number of the last token of each, per text; otherwise empty
    ends: list[Tensor]

    def of_tokens(self, labels: list[Tensor]) -> list[Tensor]:
        """The labels of words, at the last token of each."""
        if not self.ends:
            return labels
        placed = []
        for ids, ends, of_words in zip(self.ids, self.ends, labels, strict=True):
            placed.append(torch.full_like(ids, NO_LABEL).index_copy(0, ends, of_words))
        return placed

    def of_units(self, scores: Tensor) -> Tensor:
        """The rows of `scores` `[n, n_labels]` of tokens that are those of words."""
        if not self.ends:
            return scores
        of_texts = scores.split([len(ids) for ids in self.ids])
        rows = zip(of_texts, self.ends, strict=True)
        return torch.cat([of_text[ends] for of_text, ends in rows])


def reading_of(texts: Sequence[str], kind: str, trained: Trained) -> Reading:
    """The texts of a task as a model reads them. Words are encoded one by one, so each has tokens of
    its own."""
    if kind != WORDS:
        return Reading(token_ids(texts, trained), [])
    all_ids = []
    all_ends = []
    for text in texts:
        words = token_ids(WORD.findall(text), trained)
        ends = (
            torch.tensor([len(ids) for ids in words], dtype=torch.int64).cumsum(0) - 1
        )
        all_ends.append(ends)
        all_ids.append(torch.cat(words or token_ids([""], trained)))
    return Reading(all_ids, all_ends)
