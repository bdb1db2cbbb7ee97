"""Checks of a pipeline's batches against the text."""

from collections.abc import Sequence

import numpy as np

from auditing.finding import Finding, Verdict
from auditing.pipelines.target_batch import Array, Tokens
from auditing.pipelines.windows_read import Reading

SHIFTS = (1, -1, 2, -2, 3, -3)
MOST = 0.9  # the share of labels that a wrong rule must explain
VISIBLE_LABELLED = 0.5  # the share of visible characters that must not have a label
Problem = tuple[str, str] | None  # a bug and its cause


def checked(
    name: str, found: str, expected: str, evidence: str, problem: Problem, verdict: Verdict = Verdict.BROKEN
) -> Finding:
    """A finding that is ok if there is no problem."""
    return Finding(name, found, expected, evidence, *((verdict, *problem) if problem else ()))


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
    problem: Problem = None
    if ignored is not None and tokens.is_ordinary(np.array(ignored)):
        cause = f"The ignored label {ignored} is also the character {tokens.names[ignored]!r}, which is never learned."
        problem = "wrong-ignored-label", cause
    elif missing:
        problem = "changed-without-label", "Positions that were changed have no label, so they are never learned."
    elif shown > VISIBLE_LABELLED * visible:
        problem = "labels-everywhere", "The loss counts visible characters: set their labels to -100."
    unmasked = None if is_changed.any() else (f"unmasked-{which}", f"The {which} batches never go through the masking.")
    empty = sum(not each.labelled.any() for each in readings)
    none: Problem = ("no-labels", f"{empty:,} of {len(readings):,} batches have no label: a mean over it is 0 / 0.")
    of_labels = _wrong_labels(readings, labels, truth, inputs) if wrong else none if empty else None
    verdict = Verdict.BROKEN if wrong or empty == len(readings) else Verdict.DIFFERS
    masks = f"{hidden.sum():,} show [MASK], {replaced.sum():,} another character"
    unlabelled = f"{missing:,} changed and {visible - shown:,} visible characters have no label"
    n, name = f"of {is_text.sum():,}", f"{which}: ignored label {ignored}"
    return [
        checked(f"{which} masks", masks, "some hide their character", n, unmasked),
        checked(f"{which} labels", f"{wrong:,} differ from the text", "0", f"of {len(labels):,}", of_labels, verdict),
        checked(name, unlabelled, f"0, and most of {visible:,}", n, problem),
    ]


def _wrong_labels(readings: Sequence[Reading], labels: Array, truth: Array, inputs: Array) -> Problem:
    for shift in SHIFTS:
        there = [np.roll(each.truth, -shift, axis=1) for each in readings]
        pairs = [(r.labels == t)[r.labelled & r.is_text & (t >= 0)] for r, t in zip(readings, there, strict=True)]
        if np.concatenate(pairs).mean() >= MOST:
            return "labels-shifted", f"Each label is the character {shift:+d} positions away."
    if (labels == inputs).mean() >= MOST:
        return "labels-corrupted", "The labels are the masked inputs: copy the text before masking it."
    return "labels-wrong", f"Only {(labels == truth).mean():.0%} of the labels are the character at their position."
