"""Leaks of a pipeline's batches: it builds them twice, from texts that differ in hidden characters only.

With the same seed, nothing but the labels of hidden characters may change. Whatever else does is a leak.
"""

from collections.abc import Callable, Sequence

import numpy as np

from auditing.findings import Finding, Verdict, finding
from auditing.masks.table import Table
from auditing.pipelines.predictions import STILL, Predictions, moves
from auditing.pipelines.reading import table_of
from auditing.pipelines.target_batch import Array, Batch, Tokens

Build = Callable[[str, Array], Sequence[Batch]]  # batches of a text, kept under a name


def altered(table: Table, text: Array, tokens: Tokens, letters: bool) -> Array:
    """The text with other characters where they are hidden; with `letters`, letters of the same case for letters only.

    A character stays if any window shows it, or a random one in its place. With letters only, words and lines stay too.
    """
    hidden = table.inputs == tokens.mask
    hidden_only = np.setdiff1d(table.source[hidden], [-2, -1, *table.source[~hidden]])
    other, random = text.copy(), np.random.Generator(np.random.PCG64(0))
    for kind in (str.islower, str.isupper) if letters else (str,):
        ids = [i for i, character in enumerate(tokens.characters) if kind(character)]
        chosen = hidden_only[np.isin(text[hidden_only], ids)]
        other[chosen] = random.choice(text[np.isin(text, ids)], len(chosen))
    return other


def check_rebuilt(
    before: Sequence[Batch], table: Table, build: Build, text: Array, tokens: Tokens, which: str
) -> tuple[Finding, Sequence[Batch]]:
    """Do the inputs stay if hidden characters change? Returns the rebuilt batches too, none if the inputs differ."""
    name, expected, after = f"{which} batches of another hidden text", "only labels change", build("again", text)
    if any(differ(one, two) for one, two in zip(before, after, strict=False)):
        return finding(name, "they differ anyway, so leaks do not show", expected, "exact", "not-reproducible"), []
    for letters in (False, True):  # the windows may be cut at line ends or words, which may be hidden
        other = altered(table, text, tokens, letters)
        after = build("rebuilt", other)
        bug = leak_of(table, after[: len(before)], other, tokens)
        if not bug:
            break
    found, evidence = "inputs change" if bug else expected, f"{(other != text).sum():,} hidden characters"
    return finding(name, found, expected, evidence, bug), [] if bug else after


def leak_of(before: Table, batches: Sequence[Batch], text: Array, tokens: Tokens) -> str | None:
    """The leak by which batches of an altered text differ from those before. A piece of text may occur twice, so a
    character may change that is not a replacement before or after."""
    after = table_of(batches, text, tokens)
    x, y = before.inputs, after.inputs
    if x.shape != y.shape or (before.is_output != after.is_output).any():
        return "leak-length"
    if ((x == tokens.padding).sum(2) != (y == tokens.padding).sum(2)).any():
        return "leak-length"
    masks_differ = (before.labelled != after.labelled) | ((x == tokens.mask) != (y == tokens.mask))
    changed = (x != y) & ((before.changed & before.eligible) | (after.changed & after.eligible))
    if not changed.any() and not masks_differ.any():
        return None
    if ((x != y).mean(2) > 0.5).any():
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
