"""Reads a pipeline's batches as a table of positions, with the text behind them, and applies the rules for masks."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from auditing.errors import TargetError
from auditing.findings import Finding, without_consequences
from auditing.masks.amounts import check_empty
from auditing.masks.measure import Measured
from auditing.masks.rules import check_rules
from auditing.masks.table import Table, aligned, stacked
from auditing.masks.texts import Masked, Text
from auditing.masks.tokens import Facts, MaskOptions
from auditing.pipelines.target_batch import Array, Batch, Tokens

GRAM = 12  # characters in a row that tell where a piece of text is from
FOUND = 0.5  # the share of visible characters that must be found in the text
ALLOWED = "special-as-replacement"  # a share that is due to the audit's own small vocabulary


def table_of(batches: Sequence[Batch], text: Array, tokens: Tokens) -> Table:
    """The table of batches of a text `[n]`, whose place in it is the source of each position. Raises TargetError if
    they show no such text."""
    whole, calls = Text(text[None], np.ones((1, len(text)), dtype=bool)), []
    for batch in batches:
        answer = answer_of(batch, tokens)
        ids = replace(tokens.ids, ignored=ignored_label(answer.labels, tokens))
        calls.append(aligned(whole, np.zeros(1, dtype=int), answer, ids, GRAM))
    table = stacked(calls, tokens.ids)
    visible = tokens.is_ordinary(table.inputs) & table.is_output
    agrees = (table.source >= 0) & ~table.changed
    if not agrees[visible].sum() > FOUND * visible.sum():
        raise TargetError(
            f"the inputs {list(batches[0].inputs.shape)} do not show the text that make_batches was given: they must be"
            f" windows [batch, seq_len] of its ids, in its order"
        )
    return replace(table.read(), mask=tokens.mask)


def ignored_label(labels: Array, tokens: Tokens) -> int | None:
    """The label of positions that the loss skips: no character, or the most frequent label; None if all have one."""
    values, counts = np.unique(labels, return_counts=True)
    counts = np.where(tokens.is_ordinary(values), counts - labels.size / 2, counts + labels.size)
    return int(values[counts.argmax()]) if counts.max() > 0 else None


def answer_of(batch: Batch, tokens: Tokens) -> Masked:
    """A batch as the answer of a masker. If all positions have a label, one bool tensor may mark those that count."""
    labels, others = batch.labels, {key: each for key, each in batch.others.items() if each.shape == batch.labels.shape}
    marks = [each for each in others.values() if each.dtype == bool]
    if len(marks) == 1 and ignored_label(labels, tokens) is None:
        labels = np.where(marks[0], labels, -100)
    extras = {key: each for key, each in others.items() if each.dtype != bool}
    return Masked(batch.inputs, labels, extras, str(labels.dtype))


def check_table(batches: Sequence[Batch], table: Table, tokens: Tokens, which: str) -> list[Finding]:
    """The rules for masks, on "training" or "evaluation" batches."""
    options = MaskOptions(ignored=table.ignored)
    facts = Facts("loader", which, table.tokens, None, None, False)
    measured = Measured(options, facts, table, [answer_of(batch, tokens) for batch in batches], {})
    findings = without_consequences([each for each in check_rules(measured) if each.bug != ALLOWED])
    findings += [] if table.selected.any() else check_empty(measured, np.zeros(1))
    return [replace(each, name=f"{which}: {each.name}") for each in findings]
