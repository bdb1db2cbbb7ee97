"""Checks of a pipeline's batches: against the text, and against batches of a text whose hidden characters differ.

With the same seed, nothing but the labels of hidden characters may change. Whatever else does is a leak.
"""

from collections.abc import Callable, Sequence

import numpy as np

from auditing.finding import Finding, Verdict
from auditing.pipelines.target_batch import Array, Batch, Tokens
from auditing.pipelines.windows_read import Reading, read_windows

SHIFTS = (1, -1, 2, -2, 3, -3)
MOST = 0.9  # the share of labels that a wrong rule must explain
VISIBLE_LABELLED = 0.5  # the share of visible characters that must not have a label
Problem = tuple[str, str] | None  # a bug and its cause
Build = Callable[[str, Array], Sequence[Batch]]  # batches of a text, kept under a name


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


def altered(readings: Sequence[Reading], text: Array, tokens: Tokens, letters: bool) -> Array:
    """The text with other characters where they are hidden; with `letters`, letters of the same case for letters only.

    A character stays if any window shows it, or a random one in its place. With letters only, words and lines stay too.
    """
    offsets, hidden = joined(readings, "offsets", "hidden")
    hidden_only = np.setdiff1d(offsets[hidden], offsets[~hidden])
    other, random = text.copy(), np.random.Generator(np.random.PCG64(0))
    for kind in (str.islower, str.isupper) if letters else (str,):
        ids = [i for i, character in enumerate(tokens.characters) if kind(character)]
        chosen = hidden_only[np.isin(text[hidden_only], ids)]
        other[chosen] = random.choice(text[np.isin(text, ids)], len(chosen))
    return other


def check_rebuilt(
    before: Sequence[Batch], readings: Sequence[Reading], build: Build, text: Array, tokens: Tokens, which: str
) -> tuple[Finding, Sequence[Batch]]:
    """Do the inputs stay if hidden characters change? Returns the rebuilt batches too, none if the inputs differ."""
    name, expected, after = f"{which} batches of another hidden text", "only labels change", build("again", text)
    if any(differ(one, two) for one, two in zip(before, after, strict=False)):
        cause = "The batches of one seed and text differ, so that leaks do not show here: draw from `seed` or torch."
        return checked(name, "they differ anyway", "", "", ("not-reproducible", cause), Verdict.DIFFERS), []
    for letters in (False, True):  # the windows may be cut at line ends or words, which may be hidden
        other = altered(readings, text, tokens, letters)
        after = build("rebuilt", other)
        changes = (_inputs_changed(*each, other, tokens) for each in zip(before, after, readings, strict=False))
        problem = next((each for each in changes if each), None)
        if not problem:
            break
    verdict = Verdict.DIFFERS if problem and problem[0] == "leak-masks" else Verdict.BROKEN
    found, evidence = "inputs change" if problem else expected, f"{(other != text).sum():,} hidden characters"
    return checked(name, found, expected, evidence, problem, verdict), [] if problem else after


def _inputs_changed(before: Batch, after: Batch, reading: Reading, other: Array, tokens: Tokens) -> Problem:
    """A piece of text may occur twice, so a character may change that is not a replacement before or after."""
    x, y = before.inputs, after.inputs
    if x.shape != y.shape or ((x == tokens.padding).sum(1) != (y == tokens.padding).sum(1)).any():
        return "leak-length", "The width or the padding of windows depends on hidden characters."
    is_labelled = [each.labels != reading.ignored for each in (before, after)]
    masks_differ = (is_labelled[0] != is_labelled[1]) | ((x == tokens.mask) != (y == tokens.mask))
    differ = x != y
    if differ.any():
        differ &= reading.replaced | read_windows(after, other, tokens).replaced
    if not differ.any() and not masks_differ.any():
        return None
    if (x != y).any() and sorted(map(bytes, x)) == sorted(map(bytes, y)):
        return "leak-order", "The order of the windows depends on their hidden characters: sort before masking."
    if ((x != y).mean(1) > 0.5).any():
        return "leak-sampling", "The choice of windows depends on their hidden characters: choose before masking."
    if masks_differ.any():
        cause = "The masks depend on the hidden characters, so they tell about them. Right if rare ones are preferred."
        return "leak-masks", cause
    return "leak-inputs", f"{differ.sum():,} visible characters of a batch depend on hidden ones, which they may copy."


def differ(one: Batch, other: Batch, *names: str) -> bool:
    """Whether two batches differ, in all or in some arrays."""
    pairs = [(one.arrays[name], other.arrays.get(name)) for name in names or one.arrays]
    return any(y is None or not np.array_equal(x, y, equal_nan=x.dtype.kind == "f") for x, y in pairs)
