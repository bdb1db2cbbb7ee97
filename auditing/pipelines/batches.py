"""Checks of a pipeline's batches: is anything hidden, are the labels the text, is the ignored label no character?"""

from collections.abc import Sequence

import numpy as np

from auditing.finding import Finding, Verdict
from auditing.pipelines.play_tokens import Array, Tokens
from auditing.pipelines.windows_read import Reading

FARTHEST_SHIFT = 3
MOST = 0.9  # the share of labels that a wrong rule must explain
VISIBLE_LABELLED = 0.5  # the share of visible characters that must not have a label
Problem = tuple[str, str] | None  # a bug and its cause


def checked(
    name: str, found: str, expected: str, evidence: str, problem: Problem, verdict: Verdict = Verdict.BROKEN
) -> Finding:
    """A finding that is ok if there is no problem."""
    return Finding(name, found, expected, evidence, *((verdict, *problem) if problem else ()))


def check_batches(readings: Sequence[Reading], tokens: Tokens, which: str) -> list[Finding]:
    """Checks of the masks and of the labels of "training" or "evaluation" batches."""
    names = ("inputs", "labels", "truth", "is_text", "labelled", "hidden", "replaced")
    inputs, labels, truth, is_text, labelled, hidden, replaced = (joined(readings, name) for name in names)
    is_changed, where = hidden | replaced, labelled & is_text
    cause = f"The {which} batches never go through the masking: the inputs equal the text."
    masks = checked(
        f"{which} masks",
        f"{hidden.sum():,} show [MASK], {replaced.sum():,} another character",
        "some hide their character",
        f"of {is_text.sum():,}",
        None if is_changed.any() else (f"unmasked-{which}", cause),
    )
    wrong = int((labels != truth)[where].sum())
    problem: Problem = None if where.any() else ("no-labels", "No position of these batches has a label.")
    if wrong:
        problem = _wrong_labels(readings, labels[where], truth[where], inputs[where])
    of_labels = checked(
        f"{which} labels", f"{wrong:,} differ from the text", "0 differ from the text", f"of {where.sum():,}", problem
    )
    missing, visible, shown = (int(each.sum()) for each in (is_changed & ~labelled, is_text & ~is_changed, where & ~is_changed))
    ignored = readings[0].ignored
    return [
        masks,
        of_labels,
        checked(
            f"{which}: ignored label {'none' if ignored is None else ignored}",
            f"{missing:,} changed and {visible - shown:,} visible characters have no label",
            f"0, and most of {visible:,}",
            f"of {is_text.sum():,}",
            _wrong_ignored(ignored, tokens, missing, shown > VISIBLE_LABELLED * visible),
        ),
    ]


def joined(readings: Sequence[Reading], name: str) -> Array:
    """An array of all readings, such as "hidden", flat."""
    return np.concatenate([getattr(each, name).ravel() for each in readings])


def _wrong_labels(readings: Sequence[Reading], labels: Array, truth: Array, inputs: Array) -> Problem:
    for shift in (s for d in range(1, FARTHEST_SHIFT + 1) for s in (d, -d)):
        here, there = (slice(None, -shift), slice(shift, None)) if shift > 0 else (slice(-shift, None), slice(None, shift))
        pairs = [(r.labels[:, here][w], r.truth[:, there][w]) for r in readings
                 for w in [r.labelled[:, here] & r.is_text[:, here] & r.is_text[:, there]]]  # fmt: skip
        if np.mean(np.concatenate([label == text for label, text in pairs])) >= MOST:
            return "labels-shifted", f"Each label is the character {shift:+d} positions away."
    if (labels == inputs).mean() >= MOST:
        return "labels-corrupted", "The labels are the masked inputs: copy the text before masking it."
    return "labels-wrong", f"Only {(labels == truth).mean():.0%} of the labels are the character at their position."


def _wrong_ignored(ignored: int | None, tokens: Tokens, missing: int, everywhere: bool) -> Problem:
    if ignored is not None and 0 <= ignored < tokens.n_ordinary:
        name = tokens.names[ignored]
        cause = f"The ignored label {ignored} is also the character {name!r}, which is never learned: use -100."
        return "wrong-ignored-label", cause
    if missing:
        return "changed-without-label", "Positions that were changed have no label, so they are never learned."
    return ("labels-everywhere", "The loss counts visible characters: set their labels to -100.") if everywhere else None
