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
# a share that is due to the audit's own small vocabulary
ALLOWED = "special-as-replacement"


def table_of(batches: Sequence[Masked], text: Array, tokens: Tokens) -> Table:
    """The table of batches of a text `[n]`, whose place in it is the source of each position.
    Raises TargetError if they show no such text."""
    whole = Text(text[None], np.ones((1, len(text)), dtype=bool))
    row = np.zeros(1, dtype=int)
    calls = [
        aligned(whole, row, answer_of(batch, tokens), tokens.ids, GRAM)
        for batch in batches
    ]
    table = stacked(calls, tokens.ids)
    visible = (table.inputs >= 0) & (table.inputs < tokens.n_ordinary) & table.is_output
    agrees = (table.source >= 0) & ~table.changed
    if not agrees[visible].sum() > FOUND * visible.sum():
        shape = list(batches[0].inputs.shape)
        raise TargetError(
            f"the inputs {shape} do not show the text that make_batches was given:"
            " they must be windows [batch, seq_len] of its ids, in its order"
        )

    return replace(table.read(), mask=tokens.mask)


def answer_of(batch: Masked, tokens: Tokens) -> Masked:
    """A batch as the answer of a masker. If all positions have a label, a bool tensor may mark
    those that count: the one with the fewest marks of those that mark every `[MASK]`."""
    is_masked = batch.inputs == tokens.mask
    marks = []
    for column in batch.columns.values():
        if column.dtype == bool and column.any() and column[is_masked].all():
            marks.append(column)

    labels = batch.labels
    if marks and most_frequent(labels, 0.5) is None:
        labels = np.where(min(marks, key=np.sum), labels, -100)
    extras = {}
    for key, part in batch.extras.items():
        if part.dtype != bool or key == "attention_mask":
            extras[key] = part

    return replace(batch, labels=labels, extras=extras)


def check_table(
    batches: Sequence[Masked], table: Table, tokens: Tokens, which: str
) -> list[Finding]:
    """The rules for masks, on "training" or "evaluation" batches."""
    options = MaskOptions(ignored=table.ignored)
    facts = Facts(None, "loader", table.tokens)  # nothing is stated
    answers = [answer_of(batch, tokens) for batch in batches]
    measured = Measured(options, facts, table, answers, {})
    findings = without_consequences(
        [each for each in check_rules(measured) if each.bug != ALLOWED]
    )
    if not table.selected.any():
        findings += check_empty(measured, np.zeros(1))
    return [replace(each, name=f"{which}: {each.name}") for each in findings]


def altered(table: Table, text: Array, tokens: Tokens, letters: bool) -> Array:
    """The text with other characters where they are hidden; with `letters`, letters of the same
    case for letters only.

    A character stays if any window shows it, or a random one in its place. With letters only, words
    and lines stay too.
    """
    hidden = table.inputs == tokens.mask
    hidden_only = np.setdiff1d(table.source[hidden], [-2, -1, *table.source[~hidden]])
    other = text.copy()
    random = np.random.Generator(np.random.PCG64(0))

    for is_of_kind in (str.islower, str.isupper) if letters else (str,):
        ids = [
            i for i, character in enumerate(tokens.characters) if is_of_kind(character)
        ]
        chosen = hidden_only[np.isin(text[hidden_only], ids)]
        other[chosen] = random.choice(text[np.isin(text, ids)], len(chosen))

    return other


def check_rebuilt(
    first: Predictions, build: Build, text: Array, tokens: Tokens
) -> tuple[Finding, Sequence[Masked]]:
    """Do the inputs stay if hidden characters change? Returns the rebuilt batches too, none if the
    inputs differ."""
    name = f"{first.name} batches of another hidden text"
    usual = "only labels change"
    after = build("again", text)
    if any(differ(one, two) for one, two in zip(first.batches, after, strict=False)):
        found = "they differ anyway, so leaks do not show"
        return finding(name, found, usual, "exact", "not-reproducible"), []

    for letters in (False, True):
        # The windows may be cut at line ends or words, which may be hidden: then letters only.
        other = altered(first.table, text, tokens, letters)
        after = build("rebuilt", other)
        bug = leak_of(first.table, after[: len(first.batches)], other, tokens)
        if not bug:
            break

    evidence = f"{(other != text).sum():,} hidden characters"
    if bug:
        return finding(name, "inputs change", usual, evidence, bug), []
    return finding(name, usual, usual, evidence), after


def leak_of(
    before: Table, batches: Sequence[Masked], text: Array, tokens: Tokens
) -> str | None:
    """The leak by which batches of an altered text differ from those before. A piece of text may
    occur twice, so a character may change that is not a replacement before or after."""
    after = table_of(batches, text, tokens)
    x = before.inputs
    y = after.inputs
    if x.shape != y.shape or (before.is_output != after.is_output).any():
        return "leak-length"
    if ((x == tokens.padding).sum(2) != (y == tokens.padding).sum(2)).any():
        return "leak-length"
    masks_differ = (before.labelled != after.labelled) | (
        (x == tokens.mask) != (y == tokens.mask)
    )
    is_replacement = (before.changed & before.eligible) | (
        after.changed & after.eligible
    )
    changed = (x != y) & is_replacement
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
        i = first_difference(predictions.batches, after, key)
        if i is None:
            continue
        moved = 0.0
        new = after[i].extras.get(key, np.zeros(0))
        if new.shape == predictions.batches[i].extras[key].shape:
            moved = predictions.moved(i, {key: new})
        is_used = moved > STILL >= predictions.moved(i, {})
        verdict = Verdict.BROKEN if is_used else Verdict.DIFFERS
        name = f"{predictions.name}: {key} rebuilt"
        text = f"it depends on hidden characters, and {moves(moved)}"
        findings.append(
            finding(name, text, "no change", "exact", "leak-target", verdict=verdict)
        )

    return findings


def first_difference(
    before: Sequence[Masked], after: Sequence[Masked], key: str
) -> int | None:
    """The number of the first batch in which a tensor differs beside equal inputs."""
    for i, (one, two) in enumerate(zip(before, after, strict=False)):
        if differ(one, two, key) and not differ(one, two, "inputs"):
            return i
    return None


def differ(one: Masked, other: Masked, *names: str) -> bool:
    """Whether two batches differ, in all or in some arrays."""
    for name in names or one.arrays:
        x = one.arrays[name]
        y = other.arrays.get(name)
        if y is None or not np.array_equal(x, y, equal_nan=x.dtype.kind == "f"):
            return True
    return False
