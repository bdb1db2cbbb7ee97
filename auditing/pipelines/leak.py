"""Locates a leak: the source of information without which the loss is no longer below the floor."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from auditing.pipelines.batch import Array
from auditing.pipelines.evaluation_windows import EvaluationWindows
from auditing.pipelines.levels import compare
from auditing.pipelines.perturbation import COPIES, Perturbation
from auditing.pipelines.references import References

GROUPS = 8  # of the windows of a batch, measured apart from each other
Source = tuple[str, str]  # the bug and its cause


def locate(
    windows: EvaluationWindows, references: References, perturbations: Sequence[Perturbation], seed: int
) -> Source | None:
    """The first source whose removal lifts the loss to the floor; None if no change does.

    `perturbations` has one for each batch of `windows`.
    """
    for name, changes in _sources(perturbations):
        losses = [windows.losses(each, only=i) for i, each in enumerate(changes)]
        if not compare(np.concatenate(losses), references.floor, references.windows).is_leak:
            return _named(name, perturbations[0].copies_of_text())
    if _without_other_windows(windows, references, perturbations):
        return "attends-over-batch", "The prediction uses the other windows of its batch."
    offset, share = perturbations[0].copied_offset()
    if offset and share > COPIES:
        side = "left" if offset < 0 else "right"
        return f"leak-{side}", f"The model copies the character {abs(offset)} to the {side} in {share:.0%} of windows."
    anew = windows.masked_anew(seed)
    others = anew.references()
    if not compare(anew.losses(), others.floor, others.windows).is_leak:
        return "leak-evaluation-masks", (
            "The masks depend on the text, so they tell about it: with independent masks the loss is above the floor."
            " Right for whole words, wrong otherwise."
        )
    return None


def _sources(perturbations: Sequence[Perturbation]) -> Iterator[tuple[str, list[Mapping[str, Array]]]]:
    """The name of each source of information, and the changes that remove it from each batch."""
    by_batch = [dict(each.without()) for each in perturbations]
    for name in by_batch[0]:
        yield name, [changes.get(name, {}) for changes in by_batch]


def _named(name: str, copies: Sequence[str]) -> Source:
    if name == "labels":
        return (
            "leak-labels",
            "The model sees its labels: other labels change its predictions.",
        )
    if name in copies:
        return "leak-target", f"The model sees element {name} of the batch, which has the hidden text."
    if "position" in name:
        return "leak-position-ids", f"Element {name} of the batch depends on the hidden characters."
    return "leak-target", f"Element {name} of the batch depends on the hidden characters."


def _without_other_windows(
    windows: EvaluationWindows, references: References, perturbations: Sequence[Perturbation]
) -> bool:
    """Whether the loss is above the floor when a few random windows of a batch at a time stand beside random text."""
    losses = []
    for i, each in enumerate(perturbations):
        inputs, scored = each.batch.inputs, each.reading.scored
        group = each.random.permutation(len(inputs)) % GROUPS
        of_groups = [
            windows.losses({"inputs": each.other(inputs, each.visible & (group != kept)[:, None])}, only=i)
            for kept in range(GROUPS)
        ]
        losses.append(np.choose(group[scored.nonzero()[0]], of_groups))
    return not compare(np.concatenate(losses), references.floor, references.windows).is_leak
