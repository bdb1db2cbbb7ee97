"""Exact rules: what must not happen even once, in labels, special tokens, arguments and buffers;
and other tensors."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from auditing.findings import Finding, Verdict, finding
from auditing.masks.measure import EPOCHS, Measured
from auditing.masks.table import Table, shifted, spanned
from auditing.masks.tokens import KINDS

NO_LABEL = -100  # PyTorch's cross-entropy ignores it by default
RARELY_SKIPPED = 1e-3  # below, tokens of a collator that seem to be left out may be misplaced
SURE_ROW = 16  # tokens of no example, from which a row is foreign
HARMLESS = 0.01  # the share of special tokens among random ones; BERT's own code has 0.0002
MANY = 40  # expected count from which zero is not due to chance
HINT = "If these ids are special, state --special."
# Tensors of a batch that a model takes as its inputs; others, such as a mask of the loss, may mark
# the selection.
MODEL_INPUTS = (
    "attention_mask",
    "token_type_ids",
    "position_ids",
    "segment_ids",
    "decoder_input_ids",
)


def never(name: str, wrong: Any, among: Any, what: str, bug: str, **fields: Any) -> Finding:
    """A finding about positions, or a count of them, that must not exist at all."""
    count, total = int(np.sum(wrong)), int(np.sum(among))
    found = f"{count / max(1, total):.2%} {what}" if count else "none" if total else "not tested"
    return finding(
        name,
        found,
        "none",
        f"{count:,} of {total:,}",
        bug if count else None,
        **(fields if count else {}),
    )


def check_rules(measured: Measured) -> Iterator[Finding]:
    """All exact rules."""
    main = measured.main
    labelled, changed = main.labelled & main.eligible, main.changed & main.eligible
    of_masks = main.labelled & (main.labels == main.tokens.mask)
    if not measured.knows_texts and of_masks.sum() > 0.5 * main.labelled.sum():
        yield never(
            "labels that are [MASK]", of_masks, main.labelled, "of labels", "labels-corrupted"
        )
    if labelled.any() and not changed.any():
        yield finding(
            "hidden positions", "none", "all selected", f"0 of {labelled.sum():,}", "nothing-hidden"
        )
    elif main.ignored is None:
        yield never(
            "labels elsewhere",
            ~changed & main.eligible,
            main.eligible,
            "are visible",
            "labels-everywhere",
        )
    elif main.shift:
        evidence = f"{(changed & main.labelled).sum():,} of {changed.sum():,}"
        found = f"{main.shift:+d} position{'s' * (abs(main.shift) > 1)} off"
        yield finding("labels where selected", found, "original ids", evidence, "labels-shifted")
    else:
        yield from check_labels(measured, labelled, changed)
    yield from check_calls(measured)
    table = measured.others.get("padded", main)
    if table.attention is not None:
        off, hidden = table.attention == 0, table.selected & table.changed
        text, padding = (
            table.real & ~hidden,
            ~spanned(table.real) & (table.originals == table.tokens.padding),
        )
        yield never("attention at masks", hidden & off, hidden, "hidden", "attention-hides-mask")
        yield never("attention at text", text & off, text, "hidden", "attention-hides-text")
        yield never("attention at padding", padding & ~off, padding, "seen", "attention-at-padding")
    yield from check_extras(measured)


def check_labels(
    measured: Measured, labelled: np.ndarray, changed: np.ndarray
) -> Iterator[Finding]:
    """Whether labels are the originals, at the selected positions and nowhere else, and none is at
    special tokens."""
    main, tokens, bug = measured.main, measured.main.tokens, "labels-wrong"
    if np.iinfo(measured.answers[0].dtype).max < tokens.n_tokens - 1:
        bug = "dtype-overflow"
    elif (main.labels == main.inputs)[
        wrong := labelled & (main.labels != main.originals)
    ].sum() > 0.9 * wrong.sum():
        bug = "labels-corrupted"
    # In short windows, where special tokens were added or taken away, no token around tells the
    # places.
    tables = [main, *(table for name, table in measured.others.items() if name != "short")]
    sure = (
        tables[:1] if measured.facts.kind == "collator" else tables
    )  # the places of a collator are less sure
    columns = (
        [getattr(t, name)[t.eligible] for t in sure]
        for name in ("labels", "originals", "labelled", "changed")
    )
    labels, originals, chosen, replaced = map(np.concatenate, columns)
    wrong = chosen & (labels != originals)
    tested = (
        chosen if measured.knows_texts else wrong
    )  # else the labels were taken for the originals
    yield never("wrong labels", wrong, tested, "wrong", bug)
    yield ignored_label(measured)
    missing = changed & ~main.labelled
    bug = "left-truncated" if all_on_one_side(missing, main.selected) else "changed-without-label"
    yield never("changed without label", replaced & ~chosen, replaced, "of changes", bug)
    special = [id for id in tokens.special if id not in (tokens.padding, tokens.unknown)]
    for name, bug, ids, real in (
        (
            "padding selected",
            "padding-labelled",
            [] if tokens.padding is None else [tokens.padding],
            False,
        ),
        ("special tokens selected", "special-selected", special, True),
    ):
        places = [
            np.isin(table.originals, ids) & (table.real == real) & table.is_output
            for table in tables
        ]
        touched = [
            ((table.labelled | table.changed) & at).sum()
            for table, at in zip(tables, places, strict=True)
        ]
        yield never(name, touched, [at.sum() for at in places], "of them", bug)


def ignored_label(measured: Measured) -> Finding:
    """The label of positions that were not selected, and whether a text can contain it."""
    main, stated = measured.main, measured.options.ignored
    by_model = measured.facts.ignored  # of a Trainer's model
    ignored, usual, fields = main.ignored or 0, NO_LABEL if stated is None else stated, {}
    count = (main.eligible & (main.originals == ignored)).sum()
    is_padding = ignored == main.tokens.padding and measured.facts.kind in (
        "tensor",
        "array",
        "lists",
    )
    bug = "padding-is-character" if count else None
    if not count and stated is None and by_model is not None and ignored != by_model:
        bug = "wrong-ignored-label"
    elif not count and ignored != usual and not (is_padding and stated is None):
        inside = stated is None and 0 <= ignored < main.tokens.n_tokens
        bug = "ignored-in-vocabulary" if inside else "wrong-ignored-label"
        fields = {"verdict": Verdict.DIFFERS} if stated is None else {}
    return finding(
        "ignored label", str(ignored), str(usual), f"{count:,} times in the text", bug, **fields
    )


def all_on_one_side(missing: np.ndarray, labelled: np.ndarray) -> bool:
    """Whether, in all windows with both, the missing labels are left of all others, or right of all
    others."""
    both, width = missing.any(2) & labelled.any(2), missing.shape[2]
    missing, labelled = missing[both], labelled[both]
    last, first = width - 1 - missing[:, ::-1].argmax(1), missing.argmax(1)
    is_left, is_right = last < labelled.argmax(1), first > width - 1 - labelled[:, ::-1].argmax(1)
    return bool(both.any() and (is_left.all() or is_right.all()))


def check_calls(measured: Measured) -> Iterator[Finding]:
    """Arguments that are modified, buffers that are used again, calls without masks, tokens left
    out, batches of one window, and ids out of place."""
    main, tokens, n = measured.main, measured.main.tokens, len(measured.answers)
    if measured.facts.kind in KINDS:  # batches of a loader have no argument
        yield never(
            "argument modified",
            [a.is_modified for a in measured.answers],
            n,
            "of calls",
            "argument-modified",
        )
        yield never(
            "result overwritten",
            [a.is_reused for a in measured.answers],
            n,
            "by a call",
            "buffer-reused",
        )
    elif measured.n_passes == EPOCHS:  # of a loader; batches of a pipeline are not read twice
        shown = ((main.inputs == main.mask) & ~main.labelled & main.is_output).sum((1, 2))
        first, second = shown[: len(shown) // 2].sum(), shown[len(shown) // 2 :].sum()
        bug = "argument-modified" if second > 2 * first + MANY else None
        line = "[MASK] without a label", f"{first:,}, and {second:,} in the second epoch", "as many"
        yield finding(*line, f"{len(shown):,} batches", bug)
        before, after = selected_twice(main)
        stay, more = (
            (before & after).sum() / max(1, before.sum()),
            after.sum() / max(1, before.sum()),
        )
        is_sure = before.sum() > MANY  # of the positions that both epochs have
        bug = "argument-modified" if is_sure and stay > 0.95 and more > 1.1 else None
        found = (
            f"{stay:.0%} selected again, {more:.2f} times as many in all"
            if is_sure
            else "not tested"
        )
        line = "masks of the first epoch in the second", found, "new masks, as many"
        yield finding(*line, f"{before.size:,} positions", bug)
    if measured.facts.kind != "loader":
        is_sure = measured.facts.kind != "collator" or main.skipped.mean() > RARELY_SKIPPED
        yield never(
            "tokens left out", main.skipped & is_sure, main.is_output, "of them", "tokens-left-out"
        )
    if measured.facts.kind == "collator":
        foreign = (main.source == -1) & np.isin(main.originals, tokens.ordinary)
        inside = foreign & shifted(foreign, 1, False) & shifted(foreign, 2, False)
        inside &= main.originals != shifted(
            main.originals, 1, -1
        )  # runs of one id: padding that is not stated
        rows, strange = main.is_output.any(2), inside.sum(2) >= SURE_ROW
        yield never(
            "rows of other calls",
            strange & (strange.mean() > 0.01),
            rows,
            "of rows",
            "foreign-rows",
        )
    if measured.alone:
        yield finding(
            "a batch of one window", measured.alone, "masked as others are", "1 call", "one-window"
        )
    outside = (main.inputs < 0) | (main.inputs >= tokens.n_tokens)
    yield never(
        "ids outside vocabulary", outside, main.inputs.size, "of inputs", "out-of-vocabulary"
    )
    counts, sizes = main.selected.sum((1, 2)), main.eligible.sum((1, 2))
    expected = sizes * np.median(counts / np.maximum(1, sizes))
    unmasked, few = (counts == 0) & (expected > MANY), (counts > 0) & (counts < expected / 4)
    unmasked &= unmasked.sum() > few.sum()
    yield never("calls without masks", unmasked, len(counts), "of calls", "calls-unmasked")
    drawn = main.inputs[main.randomized]
    special = np.isin(drawn, [id for id in tokens.special if id != main.mask])
    fields = {
        "verdict": Verdict.DIFFERS,
        "recipes": ("BERT's own code, with 5 special of 30,522 tokens",),
    }
    fields = fields if special.sum() < HARMLESS * len(drawn) else {}
    yield never(
        "special among random", special, len(drawn), "special", "special-as-replacement", **fields
    )
    if main.masked.any() and 0 <= (main.mask or 0) < tokens.n_tokens:
        bug = "mask-is-ordinary" if main.mask in tokens.ordinary else None
        bug = "unknown-as-mask" if main.mask == tokens.unknown else bug
        bug = "mask-is-padding" if main.mask == tokens.padding else bug
        bug = bug or ("mask-is-another" if main.mask != tokens.mask else None)
        evidence = f"{main.masked.sum():,} of {main.selected.sum():,}"
        wanted = "a special id" if tokens.mask == main.mask else f"id {tokens.mask}"
        yield finding("mask token", f"id {main.mask}", wanted, evidence, bug)


def selected_twice(main: Table) -> tuple[np.ndarray, np.ndarray]:
    """Which positions of the text are selected in the first and in the second epoch, of those that
    both have."""
    half, n = len(main.inputs) // 2, int(main.source.max()) + 1
    has, chosen = np.zeros((2, 2, n), dtype=bool)
    for epoch, part in enumerate((slice(0, half), slice(half, None))):
        has[epoch, main.source[part][main.eligible[part] & (main.source[part] >= 0)]] = True
        chosen[epoch, main.source[part][main.selected[part] & (main.source[part] >= 0)]] = True
    before, after = chosen[:, has.all(0)]
    return before, after


def check_ids(main: Table) -> Finding:
    """Whether every ordinary id is selected at some time."""
    n_ids = max(main.tokens.n_tokens, int(main.originals.max()) + 1)
    counts, chosen = (
        np.bincount(main.originals[at], minlength=n_ids) for at in (main.eligible, main.selected)
    )
    used = counts * (chosen.sum() / max(1, counts.sum())) >= MANY
    missed = used & (chosen == 0) & (np.arange(n_ids) != main.ignored)
    may_be_special = (
        {"verdict": Verdict.DIFFERS, "cause": HINT} if main.tokens.edges is None else {}
    )
    what = f"of ids, such as {', '.join(map(str, np.flatnonzero(missed)[:4]))}"
    return never("ids never selected", missed, used, what, "never-selected", **may_be_special)


def check_extras(measured: Measured) -> Iterator[Finding]:
    """Whether another tensor of the first batches holds most of the hidden text, or marks what is
    selected."""
    ignored, calls = measured.main.ignored, [call for call in measured.answers if call.columns][:8]
    for name in sorted({name for call in calls for name in call.columns}):
        rows = [
            (call.columns[name], call.inputs, call.labels) for call in calls if name in call.columns
        ]
        part, inputs, labels = (
            np.concatenate([each.ravel() for each in column]) for column in zip(*rows, strict=True)
        )
        selected = labels != ignored if ignored is not None else inputs != labels
        hidden = selected & (inputs != labels)
        if not hidden.any() or selected.all():
            continue
        is_copy, is_first, is_other = (
            part == labels,
            part == part[selected][0],
            part != part[~selected][0],
        )
        if is_copy[hidden].mean() > 0.9 and part.max() > 1:
            yield never(
                f"text in {name}", is_copy[hidden], hidden, "of hidden tokens", "text-in-batch"
            )
        elif (
            (is_first == selected).all() or (is_other == selected).all()
        ) and name != "attention_mask":
            verdict = Verdict.BROKEN if name in MODEL_INPUTS else Verdict.DIFFERS
            yield never(
                f"selection in {name}",
                selected,
                selected,
                "marked",
                "selection-in-batch",
                verdict=verdict,
            )
    yield from check_model_inputs(measured)


def check_model_inputs(measured: Measured) -> Iterator[Finding]:
    """Whether the masks of a text change a model input: whether it differs between the first two
    passes, which have the same batches, where the selection does, or the number of selected
    positions so far."""
    main, answers, n = (
        measured.main,
        measured.answers,
        len(measured.main.inputs) // measured.n_passes,
    )
    for name in MODEL_INPUTS[1:]:  # attention has rules of its own
        moved = []
        for i, (one, two) in enumerate(zip(answers[:n], answers[n : 2 * n], strict=False)):
            columns = [
                each.columns[name].astype(float) for each in (one, two) if name in each.columns
            ]
            if len(columns) == 2 and np.array_equal(main.source[i], main.source[n + i]):
                rows, width = one.inputs.shape
                masks = (main.selected[n + i].astype(float) - main.selected[i])[:rows, :width]
                moved.append(
                    np.stack([columns[1] - columns[0], masks, masks.cumsum(1)]).reshape(3, -1)
                )
        by = np.concatenate(moved, axis=1) if moved else np.zeros((3, 1))
        related: Any = np.corrcoef(by) if by[:2].any(1).all() else np.eye(3)
        if np.abs(related[0, 1:]).max() > 0.5:
            yield never(
                f"masks in {name}", by[0] != 0, by.shape[1], "changed by masks", "masks-in-inputs"
            )
