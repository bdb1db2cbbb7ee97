"""How well a classifier does on each label."""

from collections.abc import Sequence
from typing import Any

import numpy as np

SHOWN = 3  # labels that a label is taken for most often, itself included


def per_label(confusion: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
    """Print and return precision, recall and F1 of each label, and their macro F1, the mean of F1
    over labels.

    `confusion` `[n_labels, n_labels]` says how often each label (row) was taken for each (column).
    A share with a denominator of 0 is 0.
    """
    right, found, given = confusion.diagonal(), confusion.sum(0), confusion.sum(1)
    precision, recall = right / np.maximum(found, 1), right / np.maximum(given, 1)
    f1 = 2 * right / np.maximum(found + given, 1)
    print(f"  macro F1 of the fine-tuned model: {f1.mean():.3f}")
    print(f"    {'label':16} {'precision':>9} {'recall':>9} {'F1':>9}   taken for")
    for i, (name, row) in enumerate(zip(names, confusion, strict=True)):
        most = [f"{names[j]} {row[j] / given[i]:.0%}" for j in np.argsort(-row)[:SHOWN] if row[j]]
        print(
            f"    {name[:16]:16} {precision[i]:9.3f} {recall[i]:9.3f} {f1[i]:9.3f}   {', '.join(most)}"
        )
    columns = {"precision": precision.tolist(), "recall": recall.tolist(), "F1": f1.tolist()}
    labels = {
        name: {column: values[i] for column, values in columns.items()}
        for i, name in enumerate(names)
    }
    return {"macro F1": float(f1.mean()), "labels": labels, "confusion": confusion.tolist()}
