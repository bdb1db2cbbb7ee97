"""How well a classifier does on each label."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from runs.terminal import in_one_line

SHOWN = 3  # labels that a label is taken for most often, itself included


def per_label(confusion: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
    """Print and return precision, recall and F1 of each label, and their macro F1, the mean of F1
    over labels.

    `confusion` `[n_labels, n_labels]` says how often each label (row) was taken for each (column).
    A share with a denominator of 0 is 0.
    """
    right = confusion.diagonal()
    predicted = confusion.sum(0)
    given = confusion.sum(1)
    precision = right / np.maximum(predicted, 1)
    recall = right / np.maximum(given, 1)
    f1 = 2 * right / np.maximum(predicted + given, 1)
    shown = [in_one_line(name) for name in names]
    print(f"  macro F1 of the fine-tuned model: {f1.mean():.3f}")
    print(f"    {'label':16} {'precision':>9} {'recall':>9} {'F1':>9}   taken for")
    labels = {}
    for i, row in enumerate(confusion):
        most = [
            f"{shown[j]} {row[j] / given[i]:.0%}"
            for j in np.argsort(-row)[:SHOWN]
            if row[j]
        ]
        scores = {"precision": precision[i], "recall": recall[i], "F1": f1[i]}
        columns = " ".join(f"{score:9.3f}" for score in scores.values())
        print(f"    {shown[i][:16]:16} {columns}   {', '.join(most)}")
        labels[names[i]] = {name: float(score) for name, score in scores.items()}

    return {
        "macro F1": float(f1.mean()),
        "labels": labels,
        "confusion": confusion.tolist(),
    }
