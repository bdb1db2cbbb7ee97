"""A pipeline's batches: reads them as a table, with the text behind them, applies the rules for
masks, and finds leaks.

For leaks it builds them twice, with the same seed, from texts that differ in hidden characters
only. Nothing but the labels of these may change. Whatever else does is a leak.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from auditing.errors import TargetError
from auditing.findings import Finding, Verdict, finding, without_consequences
from auditing.masks.amounts import check_empty
from auditing.masks.measure import Measured
from auditing.masks.rules import check_rules
from auditing.masks.table import Table, aligned, stacked
from auditing.masks.texts import Masked, Text
from auditing.masks.tokens import Facts, MaskOptions, most_frequent
from auditing.pipelines.predictions import STILL, Predictions, moves
from auditing.pipelines.target_batch import Array, Tokens

Build = Callable[[str, Array], Sequence[Masked]]  # batches of a text, kept under a name
GRAM = 12  # characters in a row that tell where a piece of text is from
FOUND = 0.5  # the share of visible characters that must be found in the text
ALLOWED = "special-as-replacement"  # a share that is due to the audit's own small vocabulary


def table_of(batches: Sequence[Masked], text: Array, tokens: Tokens) -> Table:
    """The table of batches of a text `[n]`, whose place in it is the source of each position.
    Raises TargetError if they show no such text."""
    whole, row = Text(text[None], np.ones((1, len(text)), dtype=bool)), np.zeros(1, dtype=int)
    calls = [aligned(whole, row, answer_of(batch, tokens), tokens.ids, GRAM) for batch in batches]
    table = stacked(calls, tokens.ids)
    visible = (table.inputs >= 0) & (table.inputs < tokens.n_ordinary) & table.is_output
    agrees = (table.source >= 0) & ~table.changed
    if not agrees[visible].sum() > FOUND * visible.sum():
        raise TargetError(
            f"the inputs {list(batches[0].inputs.shape)} do not show the text that make_batches was given: they must be"
            f" windows [batch, seq_len] of its ids, in its order"
        )
    return replace(table.read(), mask=tokens.mask)


def answer_of(batch: Masked, tokens: Tokens) -> Masked:
    """A batch as the answer of a masker. If all positions have a label, a bool tensor may mark
    those that count: the one with the fewest marks of those that mark every `[MASK]`."""
    marks = [each for each in batch.columns.values() if each.dtype == bool and each.any()]
    marks = [each for each in marks if each[batch.inputs == tokens.mask].all()]
    is_marked = bool(marks) and most_frequent(batch.labels, 0.5) is None
    labels = np.where(min(marks, key=np.sum), batch.labels, -100) if is_marked else batch.labels
    extras = {
        key: each
        for key, each in batch.extras.items()
        if each.dtype != bool or key == "attention_mask"
    }
    return replace(batch, labels=labels, extras=extras)


def check_table(
    batches: Sequence[Masked], table: Table, tokens: Tokens, which: str
) -> list[Finding]:
    """The rules for masks, on "training" or "evaluation" batches."""
    options = MaskOptions(ignored=table.ignored)
    facts = Facts(None, "loader", table.tokens)  # nothing is stated
    measured = Measured(options, facts, table, [answer_of(batch, tokens) for batch in batches], {})
    findings = without_consequences([each for each in check_rules(measured) if each.bug != ALLOWED])
    findings += [] if table.selected.any() else check_empty(measured, np.zeros(1))
    return [replace(each, name=f"{which}: {each.name}") for each in findings]


def altered(table: Table, text: Array, tokens: Tokens, letters: bool) -> Array:
    """The text with other characters where they are hidden; with `letters`, letters of the same
    case for letters only.

    A character stays if any window shows it, or a random one in its place. With letters only, words
    and lines stay too.
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
    first: Predictions, build: Build, text: Array, tokens: Tokens
) -> tuple[Finding, Sequence[Masked]]:
    """Do the inputs stay if hidden characters change? Returns the rebuilt batches too, none if the
    inputs differ."""
    name, expected, after = (
        f"{first.name} batches of another hidden text",
        "only labels change",
        build("again", text),
    )
    if any(differ(one, two) for one, two in zip(first.batches, after, strict=False)):
        return finding(
            name, "they differ anyway, so leaks do not show", expected, "exact", "not-reproducible"
        ), []
    for letters in (
        False,
        True,
    ):  # the windows may be cut at line ends or words, which may be hidden
        other = altered(first.table, text, tokens, letters)
        after = build("rebuilt", other)
        bug = leak_of(first.table, after[: len(first.batches)], other, tokens)
        if not bug:
            break
    found, evidence = (
        "inputs change" if bug else expected,
        f"{(other != text).sum():,} hidden characters",
    )
    return finding(name, found, expected, evidence, bug), [] if bug else after


def leak_of(before: Table, batches: Sequence[Masked], text: Array, tokens: Tokens) -> str | None:
    """The leak by which batches of an altered text differ from those before. A piece of text may
    occur twice, so a character may change that is not a replacement before or after."""
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


def check_others(predictions: Predictions, after: Sequence[Masked]) -> list[Finding]:
    """A finding per further tensor that differs in rebuilt batches beside equal inputs: the model
    must not use it."""
    findings = []
    for key in predictions.batches[0].extras:
        pairs = enumerate(zip(predictions.batches, after, strict=False))
        i = next(
            (i for i, (x, y) in pairs if differ(x, y, key) and not differ(x, y, "inputs")), None
        )
        if i is None:
            continue
        old, new = predictions.batches[i].extras[key], after[i].extras.get(key, np.zeros(0))
        moved = predictions.moved(i, {key: new}) if new.shape == old.shape else 0.0
        is_used = moved > STILL >= predictions.moved(i, {})
        name, verdict = (
            f"{predictions.name}: {key} rebuilt",
            Verdict.BROKEN if is_used else Verdict.DIFFERS,
        )
        found = f"it depends on hidden characters, and {moves(moved)}"
        findings.append(finding(name, found, "no change", "exact", "leak-target", verdict=verdict))
    return findings


def differ(one: Masked, other: Masked, *names: str) -> bool:
    """Whether two batches differ, in all or in some arrays."""
    pairs = [(one.arrays[name], other.arrays.get(name)) for name in names or one.arrays]
    return any(
        y is None or not np.array_equal(x, y, equal_nan=x.dtype.kind == "f") for x, y in pairs
    )
