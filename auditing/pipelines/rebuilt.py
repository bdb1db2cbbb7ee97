"""Leaks of a pipeline's batches: it builds them twice, from texts that differ in hidden characters only.

With the same seed, nothing but the labels of hidden characters may change. Whatever else does is a leak.
"""

from collections.abc import Callable, Sequence

import numpy as np

from auditing.catalogue import finding
from auditing.finding import Finding, Verdict
from auditing.pipelines.batches import joined
from auditing.pipelines.predictions import STILL, Predictions, moves
from auditing.pipelines.target_batch import Array, Batch, Tokens
from auditing.pipelines.windows_read import Reading, read_windows

Build = Callable[[str, Array], Sequence[Batch]]  # batches of a text, kept under a name


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
        return finding(name, "they differ anyway, so leaks do not show", expected, "exact", "not-reproducible"), []
    for letters in (False, True):  # the windows may be cut at line ends or words, which may be hidden
        other = altered(readings, text, tokens, letters)
        after = build("rebuilt", other)
        leaks = (_leak(*each, other, tokens) for each in zip(before, after, readings, strict=False))
        bug = next((each for each in leaks if each), None)
        if not bug:
            break
    found, evidence = "inputs change" if bug else expected, f"{(other != text).sum():,} hidden characters"
    return finding(name, found, expected, evidence, bug), [] if bug else after


def _leak(before: Batch, after: Batch, reading: Reading, other: Array, tokens: Tokens) -> str | None:
    """The leak by which two batches differ. A piece of text may occur twice, so a character may change that is not a
    replacement before or after."""
    x, y = before.inputs, after.inputs
    if x.shape != y.shape or ((x == tokens.padding).sum(1) != (y == tokens.padding).sum(1)).any():
        return "leak-length"
    is_labelled = [each.labels != reading.ignored for each in (before, after)]
    masks_differ = (is_labelled[0] != is_labelled[1]) | ((x == tokens.mask) != (y == tokens.mask))
    changed = x != y
    if changed.any():
        changed &= reading.replaced | read_windows(after, other, tokens).replaced
    if not changed.any() and not masks_differ.any():
        return None
    if ((x != y).mean(1) > 0.5).any():
        return "leak-sampling"
    return "leak-masks" if masks_differ.any() else "leak-inputs"


def check_others(predictions: Predictions, after: Sequence[Batch]) -> list[Finding]:
    """A finding per further tensor that differs in rebuilt batches beside equal inputs: the model must not use it."""
    findings = []
    for key in predictions.batches[0].others:
        pairs = enumerate(zip(predictions.batches, after, strict=False))
        i = next((i for i, (x, y) in pairs if differ(x, y, key) and not differ(x, y, "inputs")), None)
        if i is None:
            continue
        old, new = predictions.batches[i].others[key], after[i].others.get(key, np.zeros(0))
        moved = predictions.moved(i, {key: new}) if new.shape == old.shape else 0.0
        is_used = moved > STILL >= predictions.moved(i, {})
        name, verdict = f"{predictions.name}: {key} rebuilt", Verdict.BROKEN if is_used else Verdict.DIFFERS
        found = f"it depends on hidden characters, and {moves(moved)}"
        findings.append(finding(name, found, "no change", "exact", "leak-target", verdict=verdict))
    return findings


def differ(one: Batch, other: Batch, *names: str) -> bool:
    """Whether two batches differ, in all or in some arrays."""
    pairs = [(one.arrays[name], other.arrays.get(name)) for name in names or one.arrays]
    return any(y is None or not np.array_equal(x, y, equal_nan=x.dtype.kind == "f") for x, y in pairs)
