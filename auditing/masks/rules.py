"""Exact rules: what must not happen even once, in labels, special tokens, arguments, buffers, and other tensors."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from auditing.finding import Finding, Verdict
from auditing.masks.catalogue import finding
from auditing.masks.measure import Measured
from auditing.masks.table import Table

NO_LABEL = -100  # PyTorch's cross-entropy ignores it by default
HARMLESS = 0.01  # the share of special tokens among random ones of BERT's own code is far below
MANY = 40  # expected count from which zero is not due to chance
# Tensors of a batch that a model takes as its inputs; others, such as a mask of the loss, may mark the selection.
MODEL_INPUTS = ("attention_mask", "token_type_ids", "position_ids", "segment_ids", "decoder_input_ids")


def never(name: str, wrong: Any, among: Any, what: str, bug: str, **fields: Any) -> Finding:
    """A finding about positions, or a count of them, that must not exist at all."""
    count, total = int(np.sum(wrong)), int(np.sum(among))
    found = f"{count / max(1, total):.2%} {what}" if count else "none"
    return finding(name, found, "none", f"{count:,} of {total:,}", bug if count else None, **(fields if count else {}))


def check_rules(measured: Measured) -> Iterator[Finding]:
    """All exact rules."""
    main = measured.main
    labelled, changed = main.labelled & main.eligible, main.changed & main.eligible
    if labelled.any() and not changed.any():
        yield finding("hidden positions", "none", "all selected", f"0 of {labelled.sum():,}", "nothing-hidden")
    elif main.ignored is None:
        yield never("labels elsewhere", ~changed & main.eligible, main.eligible, "are visible", "labels-everywhere")
    elif main.shift:
        found = f"{main.shift:+d} position{'s' * (abs(main.shift) > 1)} off"
        evidence = f"{(changed & main.labelled).sum():,} of {changed.sum():,}"
        yield finding("labels where selected", found, "original ids", evidence, "labels-shifted")
    else:
        yield from check_labels(measured, labelled, changed)
    yield from check_calls(measured)
    table = measured.others.get("padded", main)
    if table.attention is not None:
        off, hidden = table.attention == 0, table.selected & table.changed
        text, padding = table.real & ~hidden, ~table.real & (table.originals == table.tokens.padding)
        yield never("attention at masks", hidden & off, hidden, "hidden", "attention-hides-mask")
        yield never("attention at text", text & off, text, "hidden", "attention-hides-text")
        yield never("attention at padding", padding & ~off, padding, "seen", "attention-at-padding")
    yield from check_extras(measured)


def check_labels(measured: Measured, labelled: np.ndarray, changed: np.ndarray) -> Iterator[Finding]:
    """Whether labels are the originals, at the selected positions and nowhere else, and none is at special tokens."""
    main = measured.main
    wrong, bug = labelled & (main.labels != main.originals), "labels-wrong"
    if np.iinfo(measured.answers[0].dtype).max < main.tokens.n_tokens - 1:
        bug = "dtype-overflow"
    elif (main.labels == main.inputs)[labelled & changed].sum() > 0.9 * (labelled & changed).sum():
        bug = "labels-corrupted"
    yield never("labels where selected", wrong, labelled, "wrong", bug)
    stated, count = measured.options.ignored, (main.eligible & (main.originals == main.ignored)).sum()
    is_padding = main.ignored == main.tokens.padding and measured.facts.kind in ("tensor", "array", "lists")
    usual, bug, fields = NO_LABEL if stated is None else stated, None, {}
    if count:
        bug = "padding-is-character"
    elif main.ignored != usual and not (is_padding and stated is None):
        bug = "ignored-in-vocabulary" if 0 <= main.ignored < main.tokens.n_tokens else "wrong-ignored-label"
        bug, fields = ("wrong-ignored-label", {}) if stated is not None else (bug, {"verdict": Verdict.DIFFERS})
    yield finding("ignored label", str(main.ignored), str(usual), f"{count:,} times in the text", bug, **fields)
    missing = changed & ~main.labelled
    bug = "left-truncated" if all_on_one_side(missing, main.selected) else "changed-without-label"
    yield never("changed without label", missing, changed, "of changes", bug)
    tables = [main, *measured.others.values()]
    touched = [table.labelled | table.changed for table in tables]
    for name, bug, exempt, real in (
        ("padding selected", "padding-labelled", (), False),
        ("special tokens selected", "special-selected", (main.tokens.padding, main.tokens.unknown), True),
    ):
        ids = [id for id in main.tokens.special if id not in exempt] if real else [main.tokens.padding]
        places = [np.isin(table.originals, ids) & (table.real == real) & table.is_output for table in tables]
        n = sum(int(each.sum()) for each in places)
        if n:
            yield never(name, sum((a & b).sum() for a, b in zip(places, touched, strict=True)), n, "of them", bug)


def all_on_one_side(missing: np.ndarray, labelled: np.ndarray) -> bool:
    """Whether, in all windows with both, the missing labels are left of all others, or right of all others."""
    both = missing.any(2) & labelled.any(2)
    if not both.any():
        return False
    missing, labelled, width = missing[both], labelled[both], missing.shape[2]
    last, first = width - 1 - missing[:, ::-1].argmax(1), missing.argmax(1)
    return bool((last < labelled.argmax(1)).all() or (first > width - 1 - labelled[:, ::-1].argmax(1)).all())


def check_calls(measured: Measured) -> Iterator[Finding]:
    """Arguments that are modified, buffers that are used again, calls without masks, and ids that never appear."""
    main, answers = measured.main, measured.answers
    tokens, n = main.tokens, len(answers)
    yield never("argument modified", [each.is_modified for each in answers], n, "of calls", "argument-modified")
    yield never("result overwritten", [each.is_reused for each in answers], n, "by the next call", "buffer-reused")
    yield never("ids outside vocabulary", (main.inputs < 0) | (main.inputs >= tokens.n_tokens), main.inputs.size,
                "of inputs", "out-of-vocabulary")  # fmt: skip
    counts, sizes = main.per_call(main.selected), main.per_call(main.eligible)
    expected = sizes * np.median(counts / np.maximum(1, sizes))
    unmasked = (counts == 0) & (expected > MANY)
    if unmasked.sum() > ((counts > 0) & (counts < expected / 4)).sum() or not unmasked.any():
        yield never("calls without masks", unmasked, n, "of calls", "calls-unmasked")
    drawn = main.inputs[main.randomized]
    special = np.isin(drawn, [id for id in tokens.special if id != main.mask])
    few = {"verdict": Verdict.DIFFERS, "recipes": ("BERT's own code, with 5 special of 30,522 tokens",)}
    yield never("special among random", special, len(drawn), "special", "special-as-replacement",
                **(few if special.sum() < HARMLESS * len(drawn) else {}))  # fmt: skip
    if main.masked.any() and 0 <= (main.mask or 0) < tokens.n_tokens:
        bug = (
            "unknown-as-mask"
            if main.mask == tokens.unknown
            else "mask-is-ordinary"
            if main.mask in tokens.ordinary
            else None
        )
        evidence = f"{main.masked.sum():,} of {main.selected.sum():,}"
        yield finding("mask token", f"id {main.mask}", "a special id", evidence, bug)


def check_ids(main: Table) -> Iterator[Finding]:
    """Whether every ordinary id is selected at some time."""
    n_ids = max(main.tokens.n_tokens, int(main.originals.max()) + 1)
    counts, chosen = (np.bincount(main.originals[at], minlength=n_ids) for at in (main.eligible, main.selected))
    used = counts * (chosen.sum() / max(1, counts.sum())) >= MANY
    missed = used & (chosen == 0) & (np.arange(n_ids) != main.ignored)
    may_be_special = {"verdict": Verdict.DIFFERS, "cause": HINT} if len(main.tokens.special) <= 1 else {}
    ids = ", ".join(map(str, np.flatnonzero(missed)[:4]))
    yield never("ids never selected", missed, used, f"of ids, such as {ids}", "never-selected", **may_be_special)


HINT = "If these ids are special, state --special."


def check_extras(measured: Measured) -> Iterator[Finding]:
    """Whether another tensor of a batch holds the text, or marks what is selected."""
    main, calls = measured.main, [call for call in measured.answers if call.extras][:8]
    for name in sorted({name for call in calls for name in call.extras}):
        parts = np.concatenate([call.extras[name].ravel().astype(np.int64) for call in calls if name in call.extras])
        inputs, labels = (np.concatenate([getattr(call, part).ravel() for call in calls if name in call.extras])
                          for part in ("inputs", "labels"))  # fmt: skip
        selected = labels != main.ignored if main.ignored is not None else inputs != labels
        hidden = selected & (inputs != labels)
        if not hidden.any() or selected.all():
            continue
        values = parts[selected]
        marks = (values == values[0]).all() and not (parts[~selected] == values[0]).any()
        if (parts == labels)[hidden].mean() > 0.9 and parts.max() > 1:
            yield never(f"text in {name}", (parts == labels)[hidden], hidden, "of hidden tokens", "text-in-batch")
        elif marks and name != "attention_mask":
            verdict = Verdict.BROKEN if name in MODEL_INPUTS else Verdict.DIFFERS
            yield never(f"selection in {name}", selected, selected, "marked", "selection-in-batch", verdict=verdict)
