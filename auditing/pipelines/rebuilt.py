"""Finds leaks without training: batches are built again from a text whose hidden characters have changed places.

With the same seed, nothing else than the labels may change, in the batches and in the predictions.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from auditing.finding import Finding, Verdict
from auditing.pipelines.batches import Problem, checked, joined
from auditing.pipelines.predictions import STILL, Predictions, moves
from auditing.pipelines.play_tokens import Array, Tokens
from auditing.pipelines.target_batch import Batch
from auditing.pipelines.windows_read import Reading, read_windows

FARTHEST = 4  # the offset at which a hidden character may stand
Build = Callable[[str, Array], Sequence[Batch]]  # batches of a text, kept under a name


def altered(readings: Sequence[Reading], text: Array, tokens: Tokens, seed: int, letters: bool) -> Array:
    """The text with other characters where they are hidden; with `letters`, letters of the same case for letters only.

    A character stays if any window shows it, or a random one in its place. With letters only, words and lines stay too.
    """
    offsets, hidden = joined(readings, "offsets"), joined(readings, "hidden")
    hidden_only = np.setdiff1d(offsets[hidden], offsets[~hidden])
    other, random = text.copy(), np.random.Generator(np.random.PCG64(seed))
    for kind in (str.islower, str.isupper) if letters else (str,):
        ids = [i for i, character in enumerate(tokens.characters) if kind(character)]
        chosen = hidden_only[np.isin(text[hidden_only], ids)]
        other[chosen] = random.choice(text[np.isin(text, ids)], len(chosen))
    return other


def check_rebuilt(predictions: Predictions, build: Build, text: Array, tokens: Tokens, seed: int) -> list[Finding]:
    """A finding about the inputs, and one per further tensor that changes."""
    which, before, readings = predictions.name, predictions.batches, predictions.readings
    name, expected = f"{which} batches of another hidden text", "only labels change"
    again = build("again", text)
    if any(not _same(one, two, key) for one, two in zip(before, again, strict=False) for key in one.arrays):
        cause = "The batches of one seed and text differ, so that leaks do not show here: draw from `seed` or torch."
        return [checked(name, "they differ anyway", expected, "exact", ("not-reproducible", cause), Verdict.DIFFERS)]
    for letters in (False, True):  # the windows may be cut at line ends or words, which may be hidden
        other = altered(readings, text, tokens, seed, letters)
        after = build("rebuilt", other)
        for offsets in _shown(before, after, readings, other, tokens):
            other[offsets] = text[offsets]
        after = build("rebuilt", other)
        changes = [_inputs_changed(*each, other, tokens) for each in zip(before, after, readings, strict=False)]
        problem = next((each for each in changes if each), None)
        if problem is None:
            break
    verdict = Verdict.DIFFERS if problem and problem[0] == "leak-masks" else Verdict.BROKEN
    evidence = f"{(other != text).sum():,} hidden characters"
    findings = [checked(name, "inputs change" if problem else expected, expected, evidence, problem, verdict)]
    if problem is None:
        findings += _others_changed(predictions, after) or [_whole(predictions, after)]
    return findings


def _shown(
    before: Sequence[Batch], after: Sequence[Batch], readings: Sequence[Reading], other: Array, tokens: Tokens
) -> Iterator[Array]:
    """The offsets of altered characters that are visible in batches, where a window was found at a like place."""
    for one, two, reading in zip(before, after, readings, strict=False):
        if one.inputs.shape == two.inputs.shape:
            new = read_windows(two, other, tokens)
            both = (one.inputs != two.inputs) & (one.inputs != tokens.mask) & (two.inputs != tokens.mask)
            yield new.offsets[both & new.is_text & ~new.replaced & ~reading.replaced]


def _inputs_changed(before: Batch, after: Batch, reading: Reading, other: Array, tokens: Tokens) -> Problem:
    x, y = before.inputs, after.inputs
    if x.shape != y.shape or ((x == tokens.padding).sum(1) != (y == tokens.padding).sum(1)).any():
        return "leak-length", "The width or the padding of windows depends on hidden characters."
    if (x == y).all() and ((before.labels == reading.ignored) == (after.labels == reading.ignored)).all():
        return None
    if (x != y).any() and sorted(map(bytes, x)) == sorted(map(bytes, y)):
        return "leak-order", "The order of the windows depends on their hidden characters: sort before masking."
    both = tokens.is_ordinary(x) & tokens.is_ordinary(y)
    differ = (x != y) & both
    if (differ.sum(1) > both.sum(1) / 2).any():
        return "leak-sampling", "The choice of windows depends on their hidden characters: choose before masking."
    if ((x == tokens.mask) != (y == tokens.mask)).any() or not differ.any():
        cause = "The masks depend on the hidden characters, so they tell about them. Right if rare ones are preferred."
        return "leak-masks", cause
    rows, columns = differ.nonzero()
    offsets = reading.offsets[rows, columns]
    for shift in (s for d in range(1, FARTHEST + 1) for s in (d, -d)):
        if (other[np.clip(offsets + shift, 0, len(other) - 1)] == y[rows, columns]).mean() > 0.5:
            side = "left" if shift > 0 else "right"
            return f"leak-{side}", f"A hidden character also stands {abs(shift)} to the {side} of its [MASK]."
    return "leak-inputs", "Visible inputs depend on the hidden characters."


def _others_changed(predictions: Predictions, after: Sequence[Batch]) -> list[Finding]:
    """A finding per further tensor that has changed: the model must not use it."""
    findings = []
    for key in predictions.batches[0].others:
        pairs = enumerate(zip(predictions.batches, after, strict=False))
        i = next((i for i, (x, y) in pairs if not _same(x, y, key)), None)
        if i is None:
            continue
        new = after[i].others[key]
        fits = new.shape == predictions.batches[i].others[key].shape
        moved = predictions.moved(i, {key: new}) if fits else np.inf
        is_used = moved > STILL and predictions.noise <= STILL
        bug = "leak-position-ids" if "position" in key else "leak-target"
        cause = f"Element {key} of the batch depends on the hidden characters"
        cause += ", and the predictions on it." if is_used else ", but the predictions do not depend on it."
        verdict = Verdict.BROKEN if is_used else Verdict.DIFFERS
        found = moves(moved) if fits else "its shape changes"
        name = f"{predictions.name}: element {key} of the rebuilt batch"
        findings.append(checked(name, found, "it does not change", "exact", (bug, cause), verdict))
    return findings


def _whole(predictions: Predictions, after: Sequence[Batch]) -> Finding:
    """Do the predictions stay for the whole rebuilt batch, with all that is in it?"""
    i = predictions.fullest
    rebuilt = Predictions(predictions.call, "rebuilt", after, predictions.readings)
    moved = predictions.difference(i, rebuilt.measured(i).log_probs)
    is_used = moved > STILL and predictions.noise <= STILL
    cause = "The labels, or something in the batch that is no tensor, tell the model the hidden characters."
    name = f"{predictions.name}: predictions for the rebuilt batch"
    return checked(name, moves(moved), "it does not move", "exact", ("leak-target", cause) if is_used else None)


def _same(one: Batch, other: Batch, key: str) -> bool:
    """Whether two batches have equal arrays of a name."""
    x, y = one.arrays.get(key), other.arrays.get(key)
    return x is not None and y is not None and np.array_equal(x, y, equal_nan=x.dtype.kind == "f")
