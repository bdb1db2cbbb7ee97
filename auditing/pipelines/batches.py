"""Checks of a pipeline's batches against the text."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from auditing.catalogue import finding
from auditing.finding import Finding, Verdict
from auditing.pipelines.target_batch import Array, Tokens
from auditing.pipelines.windows_read import Reading

SHIFTS = (1, -1, 2, -2, 3, -3)
MOST = 0.9  # the share of labels that a wrong rule must explain
VISIBLE_LABELLED = 0.5  # the share of visible characters that must not have a label


def joined(readings: Sequence[Reading], *names: str) -> list[Array]:
    """Arrays of all readings, such as "hidden", flat."""
    return [np.concatenate([getattr(each, name).ravel() for each in readings]) for name in names]


def check_batches(readings: Sequence[Reading], tokens: Tokens, which: str) -> list[Finding]:
    """Checks of the masks and of the labels of "training" or "evaluation" batches."""
    is_text, labelled, hidden, replaced = joined(readings, "is_text", "labelled", "hidden", "replaced")
    is_changed, where = hidden | replaced, labelled & is_text
    labels, truth, inputs = (each[where] for each in joined(readings, "labels", "truth", "inputs"))
    missing, visible, shown = (is_changed & ~labelled).sum(), (is_text & ~is_changed).sum(), (where & ~is_changed).sum()
    wrong, ignored = (labels != truth).sum(), readings[0].ignored
    bug = None
    if ignored is not None and tokens.is_ordinary(np.array(ignored)):
        bug = "padding-is-character"
    elif missing:
        bug = "changed-without-label"
    elif shown > VISIBLE_LABELLED * visible:
        bug = "labels-everywhere"
    empty = sum(not each.labelled.any() for each in readings)
    of_labels = _wrong_labels(readings, labels, truth, inputs) if wrong else "no-labels" if empty else None
    fields: dict[str, Any] = {"verdict": Verdict.BROKEN} if empty == len(readings) else {}
    masks = f"{hidden.sum():,} show [MASK], {replaced.sum():,} another character"
    right = f"{wrong:,} differ from the text, {empty:,} of {len(readings):,} batches have none"
    unlabelled = f"{missing:,} changed and {visible - shown:,} visible characters have no label"
    n, all_visible, name = f"of {is_text.sum():,}", f"0, and most of {visible:,}", f"{which}: ignored label {ignored}"
    nothing = None if is_changed.any() else "nothing-hidden"
    return [
        finding(f"{which} masks", masks, "some hide their character", n, nothing),
        finding(f"{which} labels", right, "0 and 0", f"of {len(labels):,}", of_labels, **fields),
        finding(name, unlabelled, all_visible, n, bug),
    ]


def _wrong_labels(readings: Sequence[Reading], labels: Array, truth: Array, inputs: Array) -> str:
    for shift in SHIFTS:
        there = [np.roll(each.truth, -shift, axis=1) for each in readings]
        pairs = [(r.labels == t)[r.labelled & r.is_text & (t >= 0)] for r, t in zip(readings, there, strict=True)]
        if np.concatenate(pairs).mean() >= MOST:
            return "labels-shifted"
    return "labels-corrupted" if (labels == inputs).mean() >= MOST else "labels-wrong"
