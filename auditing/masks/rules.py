"""Exact rules: what must not happen even once, in labels, special tokens, arguments, buffers, and other tensors."""

from collections.abc import Iterator

import numpy as np

from auditing.finding import Finding, Verdict
from auditing.masks.catalogue import finding
from auditing.masks.measure import Measured
from auditing.masks.table import Table

NO_LABEL = -100  # PyTorch's cross-entropy ignores it by default
# Tensors of a batch that a model takes as its inputs; others, such as a mask of the loss, may mark the selection.
MODEL_INPUTS = ("attention_mask", "token_type_ids", "position_ids", "segment_ids", "decoder_input_ids")


def never(name: str, count: int, total: int, what: str, bug: str, **fields: object) -> Finding:
    """A finding about positions that must not exist at all."""
    evidence = f"{count:,} of {total:,}"
    if not count:
        return finding(name, "none", "none", evidence)
    return finding(name, f"{count / total:.2%} {what}", "none", evidence, bug, **fields)


def check_labels(measured: Measured) -> Iterator[Finding]:
    """Whether labels are the originals, at the selected positions and nowhere else."""
    main, reading = measured.main, measured.reading
    labelled, changed = main.labelled & main.eligible, main.changed & main.eligible
    name, total = "labels where selected", int(labelled.sum())
    if total and not changed.any():
        yield finding("hidden positions", "none", "all selected", f"0 of {total:,}", "nothing-hidden")
        return
    if reading.ignored is None:
        visible = int((~main.changed & main.eligible).sum())
        yield never("labels elsewhere", visible, int(main.eligible.sum()), "are visible", "labels-everywhere")
        return
    if reading.shift:
        found = f"{reading.shift:+d} position{'s' * (abs(reading.shift) > 1)} off"
        evidence = f"{int((changed & main.labelled).sum()):,} of {int(changed.sum()):,}"
        yield finding(name, found, "original ids", evidence, "labels-shifted")
        return
    wrong = labelled & (main.labels != main.originals)
    bug = "labels-wrong"
    if wrong.any() and (main.labels == main.inputs)[labelled & main.changed].mean() > 0.9:
        bug = "labels-corrupted"
    elif np.iinfo(measured.label_dtype).max < main.tokens.n_tokens - 1:
        bug = "dtype-overflow"
    yield never(name, int(wrong.sum()), total, "wrong", bug)
    if main.labelled.any():
        missing = changed & ~main.labelled
        bug = "left-truncated" if all_on_one_side(missing, main.selected) else "changed-without-label"
        yield never("changed without label", int(missing.sum()), int(changed.sum()), "of changes", bug)
    yield ignored_label(measured)


def all_on_one_side(missing: np.ndarray, labelled: np.ndarray) -> bool:
    """Whether, in all windows with both, the missing labels are left of all others, or right of all others."""
    both = missing.any(2) & labelled.any(2)
    if not both.any():
        return False
    width = missing.shape[2]
    missing, labelled = missing[both], labelled[both]
    last, first = width - 1 - missing[:, ::-1].argmax(1), missing.argmax(1)
    return bool((last < labelled.argmax(1)).all() or (first > width - 1 - labelled[:, ::-1].argmax(1)).all())


def ignored_label(measured: Measured) -> Finding:
    """The label of positions that were not selected, and whether a text can contain it."""
    main, ignored, stated = measured.main, measured.reading.ignored, measured.options.ignored
    assert ignored is not None
    count = int((main.eligible & (main.originals == ignored)).sum())
    line = "ignored label", str(ignored)
    evidence = f"{count:,} times in the text"
    if count:
        return finding(*line, "no token's id", evidence, "padding-is-character")
    if stated is not None and ignored != stated:
        return finding(*line, str(stated), evidence, "wrong-ignored-label")
    is_padding = ignored == main.tokens.padding and measured.facts.kind in ("tensor", "array", "lists")
    if ignored in (NO_LABEL, stated) or is_padding:
        return finding(*line, str(ignored), evidence)
    bug = "ignored-in-vocabulary" if 0 <= ignored < main.tokens.n_tokens else "wrong-ignored-label"
    cause = f"PyTorch's and Transformers' losses ignore {NO_LABEL}. Right only for a loss with ignore_index={ignored}."
    return finding(*line, str(NO_LABEL), evidence, bug, verdict=Verdict.DIFFERS, cause=cause)


def check_special(measured: Measured) -> Iterator[Finding]:
    """Whether padding or special tokens are selected or changed."""
    if measured.reading.ignored is None or measured.reading.shift:
        return
    special = padding = n_special = n_padding = 0
    for table in measured.tables:
        touched = table.labelled | table.changed
        ids = [id for id in table.tokens.special if id not in (table.tokens.padding, table.tokens.unknown)]
        where = table.real & np.isin(table.originals, ids)
        special, n_special = special + int((where & touched).sum()), n_special + int(where.sum())
        where = ~table.real & (table.originals == table.tokens.padding)
        padding, n_padding = padding + int((where & touched).sum()), n_padding + int(where.sum())
    if n_padding:
        yield never("padding selected", padding, n_padding, "of padding", "padding-labelled")
    if n_special:
        yield never("special tokens selected", special, n_special, "of them", "special-selected")


def check_calls(measured: Measured) -> Iterator[Finding]:
    """Arguments that are modified, buffers that are used again, and ids without an embedding."""
    answers = measured.answers
    n = len(answers)
    yield never("argument modified", sum(each.is_modified for each in answers), n, "of calls", "argument-modified")
    yield never("result overwritten", sum(each.is_reused for each in answers), n, "by the next call", "buffer-reused")
    ids = measured.main.inputs
    outside = int(((ids < 0) | (ids >= measured.main.tokens.n_tokens)).sum())
    yield never("ids outside vocabulary", outside, ids.size, "of inputs", "out-of-vocabulary")
    counts, sizes = (measured.main.per_unit(each) for each in (measured.main.selected, measured.main.eligible))
    unmasked = int(((counts == 0) & (sizes * counts.sum() / max(1, sizes.sum()) > 40)).sum())
    if counts.any() and unmasked < len(counts) / 2:
        yield never("calls without masks", unmasked, len(counts), "of calls", "calls-unmasked")


def check_extras(measured: Measured) -> Iterator[Finding]:
    """What else a batch holds: an attention mask against padding and masks, copies of the text or of the selection."""
    for table in measured.tables[:2]:
        if table.attention is not None:
            yield from attention(table)
            break
    main, first = measured.main, [call for call in measured.answers if call.extras][:8]
    for name in sorted({key for call in first for key in call.extras}):
        parts = [(call, call.extras[name].astype(np.int64)) for call in first if name in call.extras]
        ignored = measured.reading.ignored
        hidden = [(call.labels != ignored) & (call.inputs != call.labels) for call, _ in parts]
        selected = [call.labels != ignored if ignored is not None else call.inputs != call.labels for call, _ in parts]
        total = sum(int(each.sum()) for each in hidden)
        if not total or np.concatenate(selected).all():
            continue
        copied = sum(int((part == call.labels)[at].sum()) for (call, part), at in zip(parts, hidden, strict=True))
        if copied > 0.9 * total and max(int(part.max()) for _, part in parts) > 1:
            yield never(f"text in {name}", copied, total, "of hidden tokens", "text-in-batch")
            continue
        marks = [{bool(value) for value in np.unique(part == part.ravel()[at.ravel().argmax()])} and
                 ((part == part.ravel()[at.ravel().argmax()]) == at).mean() for (_, part), at in zip(parts, selected, strict=True)]  # fmt: skip
        if min(marks) > 0.999 and name != "attention_mask":
            verdict = Verdict.BROKEN if name in MODEL_INPUTS else Verdict.DIFFERS
            count = int(main.selected.sum())
            yield finding(f"selection in {name}", "marks it", "nothing", f"{count:,} positions", "selection-in-batch", verdict=verdict)


def attention(table: Table) -> Iterator[Finding]:
    """An attention mask against what is padding, text, and masked."""
    assert table.attention is not None
    off, selected = table.attention == 0, table.selected & table.changed
    yield never("attention at masks", int((selected & off).sum()), int(selected.sum()), "hidden", "attention-hides-mask")
    text, padding = table.real & ~selected, ~table.real & (table.originals == table.tokens.padding)
    yield never("attention at text", int((text & off).sum()), int(text.sum()), "hidden", "attention-hides-text")
    if padding.any():
        yield never("attention at padding", int((padding & ~off).sum()), int(padding.sum()), "seen", "attention-at-padding")
