"""How well the result does on each label, or on numbers."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr
from sklearn.metrics import confusion_matrix
from torch import Tensor

from data.tasks.task import CHOICE, LABELS, NUMBER, WORDS
from runs.terminal import in_one_line

OUTSIDE = "O"  # the tag of words outside of all entities
BEGIN = "B-"
INSIDE = "I-"
SHOWN = 3  # labels that a label is taken for most often, itself included


def details(
    kind: str, scores: Sequence[Tensor], labels: list[Tensor], names: Sequence[str]
) -> dict[str, Any]:
    """Print and return more than the score of a task, from the `scores` `[n_units, n_labels]` of
    each draw and the true labels, as in `Units`."""
    truth = torch.cat(labels)
    if kind == CHOICE:
        return {}
    if kind == NUMBER:
        return of_numbers(scores, truth)
    if kind == LABELS:
        predicted = torch.stack(list(scores)) > 0  # [n_draws, n_texts, n_labels]
        given = (truth > 0).expand_as(predicted)
        right = predicted & given
        counts = torch.stack([right, predicted, given]).sum((1, 2)).numpy()
        return table_of(counts[0], counts[1], counts[2], names)
    confusion = np.zeros((len(names), len(names)), dtype=int)
    for each in scores:
        numbers = range(len(names))
        confusion += confusion_matrix(truth, each.argmax(1), labels=numbers)
    results = per_label(confusion, names)
    if kind == WORDS and all(map(is_bio, names)):
        lengths = [len(of_text) for of_text in labels]
        predicted = [each.argmax(1).split(lengths) for each in scores]
        results["entities"] = of_entities(predicted, labels, names)
    return results


def is_bio(tag: str) -> bool:
    return tag == OUTSIDE or (tag.startswith((BEGIN, INSIDE)) and len(tag) > 2)


def of_entities(
    predicted: Sequence[Sequence[Tensor]], given: Sequence[Tensor], names: Sequence[str]
) -> dict[str, Any]:
    """`table_of` the entities of each type. An entity is right if its words and its type are."""
    kinds = sorted({name[2:] for name in names} - {""})
    truth = entities_in(given, names)
    right = np.zeros(len(kinds), dtype=int)
    found = np.zeros(len(kinds), dtype=int)
    for of_draw in predicted:
        entities_of_draw = entities_in(of_draw, names)
        right += numbers_of(entities_of_draw & truth, kinds)
        found += numbers_of(entities_of_draw, kinds)

    print("  entities, whose words and type are right:")
    return table_of(right, found, len(predicted) * numbers_of(truth, kinds), kinds)


def numbers_of(some: set[Any], kinds: Sequence[str]) -> np.ndarray:
    """How many entities there are of each type."""
    counts = Counter(kind for _, (kind, _, _) in some)
    return np.array([counts[kind] for kind in kinds])


def entities_in(labels: Sequence[Tensor], names: Sequence[str]) -> set[Any]:
    """The number of the text, and the entity, of all entities in texts."""
    tags = dict(enumerate(names))
    some = set()
    for number, of_text in enumerate(labels):
        found = entities(tags.get(i, OUTSIDE) for i in of_text.tolist())
        some.update((number, entity) for entity in found)
    return some


def entities(tags: Iterable[str]) -> set[tuple[str, int, int]]:
    """The type, the first word and the end of each entity in BIO tags. An I- after another type or
    after O begins one, as in the evaluation of CoNLL."""
    spans = set()
    kind = ""
    begin = 0
    for end, tag in enumerate([*tags, OUTSIDE]):
        if kind and tag != INSIDE + kind:
            spans.add((kind, begin, end))
            kind = ""
        if not kind and tag != OUTSIDE:
            kind = tag[2:]
            begin = end
    return spans


def of_numbers(scores: Sequence[Tensor], truth: Tensor) -> dict[str, float]:
    """The mean absolute error, that of the mean of all true numbers, and the rank correlation, as
    means over draws."""
    numbers = truth.squeeze(1).double()
    errors = []
    correlations = []
    for each in scores:
        predicted = each.squeeze(1).double()
        errors.append(float((predicted - numbers).abs().mean()))
        correlations.append(float(spearmanr(predicted, numbers).statistic))

    results = {
        "mean absolute error": float(np.mean(errors)),
        "mean absolute error of the mean": float(
            (numbers - numbers.mean()).abs().mean()
        ),
        "Spearman correlation": float(np.nan_to_num(np.mean(correlations))),
    }
    for name, value in results.items():
        print(f"  {name}: {value:.4g}")
    return results


def table_of(
    right: np.ndarray,
    predicted: np.ndarray,
    given: np.ndarray,
    names: Sequence[str],
    taken_for: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Print and return precision, recall and F1 of each label, the means of recall and of F1 over
    labels (macro F1; recall of given labels), and the micro F1, that of all decisions together.

    A share with a denominator of 0 is 0.
    """
    precision = right / np.maximum(predicted, 1)
    recall = right / np.maximum(given, 1)
    f1 = 2 * right / np.maximum(predicted + given, 1)
    mean_recall = recall.sum() / max((given > 0).sum(), 1)
    micro = 2 * right.sum() / max(predicted.sum() + given.sum(), 1)
    means = {"macro F1": f1.mean(), "micro F1": micro, "mean recall": mean_recall}
    shown = [f"{name}: {value:.3f}" for name, value in means.items()]
    print(f"  of the result: {', '.join(shown)}")
    heading = f"    {'label':16} {'precision':>9} {'recall':>9} {'F1':>9}"
    print(f"{heading}   taken for" if taken_for else heading)
    labels = {}
    for i, name in enumerate(names):
        scores = {"precision": precision[i], "recall": recall[i], "F1": f1[i]}
        columns = " ".join(f"{score:9.3f}" for score in scores.values())
        others = f"   {taken_for[i]}" if taken_for else ""
        print(f"    {in_one_line(name)[:16]:16} {columns}{others}")
        labels[name] = {measure: float(score) for measure, score in scores.items()}

    return {name: float(value) for name, value in means.items()} | {"labels": labels}


def per_label(confusion: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
    """`table_of` a confusion `[n_labels, n_labels]`: how often each label (row) was taken for each
    (column)."""
    given = confusion.sum(1)
    shown = [in_one_line(name) for name in names]
    taken_for = []
    for i, row in enumerate(confusion):
        most = [
            f"{shown[j]} {row[j] / given[i]:.0%}"
            for j in np.argsort(-row)[:SHOWN]
            if row[j]
        ]
        taken_for.append("  ".join(most))
    table = table_of(confusion.diagonal(), confusion.sum(0), given, names, taken_for)

    return table | {"confusion": confusion.tolist()}
