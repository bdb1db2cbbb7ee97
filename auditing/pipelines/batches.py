"""Checks of a pipeline's batches: is anything hidden, are the labels the text, is the ignored label no character?"""

from collections.abc import Sequence

import numpy as np

from auditing.finding import Finding, Verdict
from auditing.pipelines.batch import Array
from auditing.pipelines.tokens import Tokens
from auditing.pipelines.windows_read import Reading

FARTHEST_SHIFT = 3
MOST = 0.9  # the share of labels that a wrong rule must explain
VISIBLE_LABELLED = 0.5  # the share of visible characters that must not have a label


def check_batches(readings: Sequence[Reading], tokens: Tokens, training: bool) -> list[Finding]:
    """Checks of the masks and of the labels. `training` is what `make_batches` was told."""
    which = "training" if training else "evaluation"
    return [_masks(readings, which), _labels(readings, which), _unlabelled(readings, tokens, which)]


def total(readings: Sequence[Reading], name: str) -> int:
    """The number of positions of which a bool array of the readings, such as "hidden", is true."""
    return sum(int(getattr(reading, name).sum()) for reading in readings)


def _masks(readings: Sequence[Reading], which: str) -> Finding:
    hidden, replaced = total(readings, "hidden"), total(readings, "replaced")
    is_broken = hidden + replaced == 0
    return Finding(
        f"{which} masks",
        found=f"{hidden:,} show [MASK], {replaced:,} another character",
        expected="some hide their character",
        evidence=f"of {total(readings, 'is_text'):,}",
        verdict=Verdict.BROKEN if is_broken else Verdict.OK,
        bug=f"unmasked-{which}" if is_broken else None,
        cause=f"The {which} batches never go through the masking: the inputs equal the text." if is_broken else "",
    )


def _labels(readings: Sequence[Reading], which: str) -> Finding:
    labels, truth, inputs = (
        np.concatenate([getattr(each, name)[each.labelled & each.is_text] for each in readings])
        for name in ("labels", "truth", "inputs")
    )
    wrong = int((labels != truth).sum())
    bug, cause = (None, "") if len(labels) else ("no-labels", "No position of these batches has a label.")
    if wrong:
        bug, cause = _wrong_labels(readings, labels, truth, inputs)
    return Finding(
        f"{which} labels",
        found=f"{wrong:,} differ from the text" if len(labels) else "no labels",
        expected="0 differ from the text",
        evidence=f"of {len(labels):,}",
        verdict=Verdict.BROKEN if bug else Verdict.OK,
        bug=bug,
        cause=cause,
    )


def _wrong_labels(readings: Sequence[Reading], labels: Array, truth: Array, inputs: Array) -> tuple[str, str]:
    for shift in (s for d in range(1, FARTHEST_SHIFT + 1) for s in (d, -d)):
        agreeing = n = 0
        for each in readings:
            there = np.roll(each.truth, -shift, axis=1)
            where = each.labelled & each.is_text & (there >= 0)
            where[:, slice(-shift, None) if shift > 0 else slice(None, -shift)] = False
            agreeing, n = agreeing + int((each.labels == there)[where].sum()), n + int(where.sum())
        if agreeing >= MOST * max(n, 1):
            return "labels-shifted", f"Each label is the character {shift:+d} positions away."
    if (labels == inputs).mean() >= MOST:
        return "labels-corrupted", "The labels are the masked inputs: copy the text before masking it."
    return "labels-wrong", f"Only {(labels == truth).mean():.0%} of the labels are the character at their position."


def _unlabelled(readings: Sequence[Reading], tokens: Tokens, which: str) -> Finding:
    ignored = readings[0].ignored
    changed = total(readings, "hidden") + total(readings, "replaced")
    missing = sum(int(((each.hidden | each.replaced) & ~each.labelled).sum()) for each in readings)
    visible = total(readings, "is_text") - changed
    labelled = sum(int((each.labelled & each.is_text & (each.inputs == each.truth)).sum()) for each in readings)
    bug, cause = None, ""
    if ignored is not None and 0 <= ignored < tokens.n_ordinary:
        bug = "wrong-ignored-label"
        cause = (
            f"The ignored label {ignored} is also the character {tokens.names[ignored]!r}, which is never learned: use"
            " -100."
        )
    elif missing:
        bug, cause = "changed-without-label", "Positions that were changed have no label, so they are never learned."
    elif labelled > VISIBLE_LABELLED * visible:
        bug, cause = "labels-everywhere", "The loss counts visible characters: set their labels to -100."
    return Finding(
        f"{which}: ignored label {'none' if ignored is None else ignored}",
        found=f"{missing:,} changed and {visible - labelled:,} visible characters have no label",
        expected=f"0, and most of {visible:,}",
        evidence=f"of {changed + visible:,}",
        verdict=Verdict.BROKEN if bug else Verdict.OK,
        bug=bug,
        cause=cause,
    )
