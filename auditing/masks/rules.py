"""Exact rules: what must not happen even once, in labels, special tokens, arguments and buffers;
and other tensors."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from auditing.findings import Finding, Verdict, finding
from auditing.masks.measure import EPOCHS, Measured
from auditing.masks.table import Table, shifted, spanned
from auditing.masks.tokens import KINDS
from auditing.statistics import Array

NO_LABEL = -100  # PyTorch's cross-entropy ignores it by default
# below, tokens of a collator that seem to be left out may be misplaced
RARELY_SKIPPED = 1e-3
SURE_ROW = 16  # tokens of no example, from which a row is foreign
# the share of special tokens among random ones; BERT's own code has 0.0002
HARMLESS = 0.01
MANY = 40  # expected count from which zero is not due to chance
HINT = "If these ids are special, state --special."
# Tensors of a batch that a model takes as its inputs. Others, such as a mask of the loss, may mark
# the selection. Attention has rules of its own.
ATTENTION = "attention_mask"
MODEL_INPUTS = ("token_type_ids", "position_ids", "segment_ids", "decoder_input_ids")


def never(
    name: str, wrong: Any, among: Any, what: str, bug: str, **fields: Any
) -> Finding:
    """A finding about positions, or a count of them, that must not exist at all."""
    count = int(np.sum(wrong))
    total = int(np.sum(among))
    evidence = f"{count:,} of {total:,}"
    if count:
        share = f"{count / max(1, total):.2%} {what}"
        return finding(name, share, "none", evidence, bug, **fields)
    return finding(name, "none" if total else "not tested", "none", evidence)


def check_rules(measured: Measured) -> Iterator[Finding]:
    """All exact rules."""
    main = measured.main
    labelled = main.labelled & main.eligible
    changed = main.changed & main.eligible
    of_masks = main.labelled & (main.labels == main.tokens.mask)
    if not measured.knows_texts and of_masks.sum() > 0.5 * main.labelled.sum():
        name = "labels that are [MASK]"
        yield never(name, of_masks, main.labelled, "of labels", "labels-corrupted")

    if labelled.any() and not changed.any():
        evidence = f"0 of {labelled.sum():,}"
        yield finding(
            "hidden positions", "none", "all selected", evidence, "nothing-hidden"
        )
    elif main.ignored is None:
        visible = ~changed & main.eligible
        bug = "labels-everywhere"
        yield never("labels elsewhere", visible, main.eligible, "are visible", bug)
    elif main.shift:
        evidence = f"{(changed & main.labelled).sum():,} of {changed.sum():,}"
        positions = "position" if abs(main.shift) == 1 else "positions"
        offset = f"{main.shift:+d} {positions} off"
        yield finding(
            "labels where selected", offset, "original ids", evidence, "labels-shifted"
        )
    else:
        yield from check_labels(measured, labelled, changed)

    yield from check_calls(measured)
    yield from check_inputs(measured)
    yield from check_attention(measured.others.get("padded", main))
    yield from check_extras(measured)
    yield from check_model_inputs(measured)


def check_attention(table: Table) -> Iterator[Finding]:
    """Whether the attention mask is 1 at text, hidden or not, and 0 at padding."""
    if table.attention is None:
        return
    is_off = table.attention == 0
    hidden = table.selected & table.changed
    text = table.real & ~hidden
    padding = ~spanned(table.real) & (table.originals == table.tokens.padding)
    yield never(
        "attention at masks", hidden & is_off, hidden, "hidden", "attention-hides-mask"
    )
    yield never(
        "attention at text", text & is_off, text, "hidden", "attention-hides-text"
    )
    yield never(
        "attention at padding",
        padding & ~is_off,
        padding,
        "seen",
        "attention-at-padding",
    )


def check_labels(
    measured: Measured, labelled: Array, changed: Array
) -> Iterator[Finding]:
    """Whether labels are the originals, at the selected positions and nowhere else, and none is at
    special tokens."""
    main = measured.main
    # In short windows, where special tokens were added or taken away, no token around tells the
    # places.
    others = [table for name, table in measured.others.items() if name != "short"]
    # The places of a collator are less sure.
    sure = [main] if measured.facts.kind == "collator" else [main, *others]

    def joined(name: str) -> Array:
        return np.concatenate([getattr(table, name)[table.eligible] for table in sure])

    chosen = joined("labelled")
    replaced = joined("changed")
    wrong = chosen & (joined("labels") != joined("originals"))
    # If the labels were taken for the originals, they were not tested.
    tested = chosen if measured.knows_texts else wrong
    yield never("wrong labels", wrong, tested, "wrong", why_wrong(measured, labelled))
    yield ignored_label(measured)
    missing = changed & ~main.labelled
    bug = (
        "left-truncated"
        if all_on_one_side(missing, main.selected)
        else "changed-without-label"
    )
    yield never(
        "changed without label", replaced & ~chosen, replaced, "of changes", bug
    )
    yield from check_special([main, *others])


def why_wrong(measured: Measured, labelled: Array) -> str:
    """The bug that explains wrong labels."""
    main = measured.main
    if np.iinfo(measured.answers[0].dtype).max < main.tokens.n_tokens - 1:
        return "dtype-overflow"
    wrong = labelled & (main.labels != main.originals)
    are_inputs = (main.labels == main.inputs)[wrong]
    return (
        "labels-corrupted" if are_inputs.sum() > 0.9 * wrong.sum() else "labels-wrong"
    )


def check_special(tables: list[Table]) -> Iterator[Finding]:
    """Whether padding or special tokens are selected."""
    tokens = tables[0].tokens
    padding = [] if tokens.padding is None else [tokens.padding]
    special = [
        id for id in tokens.special if id not in (tokens.padding, tokens.unknown)
    ]

    for name, bug, ids, is_real in (
        ("padding selected", "padding-labelled", padding, False),
        ("special tokens selected", "special-selected", special, True),
    ):
        n_touched = 0
        n_places = 0
        for table in tables:
            places = (
                np.isin(table.originals, ids)
                & (table.real == is_real)
                & table.is_output
            )
            n_places += places.sum()
            n_touched += ((table.labelled | table.changed) & places).sum()
        yield never(name, n_touched, n_places, "of them", bug)


def ignored_label(measured: Measured) -> Finding:
    """The label of positions that were not selected, and whether a text can contain it."""
    main = measured.main
    stated = measured.options.ignored
    by_model = measured.facts.ignored  # of a Trainer's model
    ignored = main.ignored or 0
    usual = NO_LABEL if stated is None else stated
    n_in_text = (main.eligible & (main.originals == ignored)).sum()
    is_padding = ignored == main.tokens.padding
    is_padding &= measured.facts.kind in ("tensor", "array", "lists")
    bug = None
    fields = {}
    if n_in_text:
        bug = "padding-is-character"
    elif stated is not None:
        bug = "wrong-ignored-label" if ignored != usual else None
    elif by_model is not None and ignored != by_model:
        bug = "wrong-ignored-label"
    elif ignored != usual and not is_padding:
        is_id = 0 <= ignored < main.tokens.n_tokens
        bug = "ignored-in-vocabulary" if is_id else "wrong-ignored-label"
        fields = {"verdict": Verdict.DIFFERS}

    evidence = f"{n_in_text:,} times in the text"
    return finding("ignored label", str(ignored), str(usual), evidence, bug, **fields)


def all_on_one_side(missing: Array, labelled: Array) -> bool:
    """Whether, in all windows with both, the missing labels are left of all others, or right of all
    others."""
    both = missing.any(2) & labelled.any(2)
    missing = missing[both]
    labelled = labelled[both]
    end = missing.shape[1] - 1
    is_left = end - missing[:, ::-1].argmax(1) < labelled.argmax(1)
    is_right = missing.argmax(1) > end - labelled[:, ::-1].argmax(1)
    return bool(both.any() and (is_left.all() or is_right.all()))


def check_calls(measured: Measured) -> Iterator[Finding]:
    """Arguments that are modified, buffers that are used again, tokens left out, rows of other
    calls, and batches of one window."""
    main = measured.main
    kind = measured.facts.kind
    if kind in KINDS:  # batches of a loader have no argument
        n_calls = len(measured.answers)
        modified = [answer.is_modified for answer in measured.answers]
        reused = [answer.is_reused for answer in measured.answers]
        yield never(
            "argument modified", modified, n_calls, "of calls", "argument-modified"
        )
        yield never("result overwritten", reused, n_calls, "by a call", "buffer-reused")
    elif (
        measured.n_passes == EPOCHS
    ):  # of a loader; batches of a pipeline are not read twice
        yield from check_epochs(main)
    if kind != "loader":
        is_sure = kind != "collator" or main.skipped.mean() > RARELY_SKIPPED
        skipped = main.skipped & is_sure
        yield never(
            "tokens left out", skipped, main.is_output, "of them", "tokens-left-out"
        )
    if kind == "collator":
        foreign = (main.source == -1) & np.isin(main.originals, main.tokens.ordinary)
        inside = foreign & shifted(foreign, 1, False) & shifted(foreign, 2, False)
        # A run of one id is padding that is not stated.
        inside &= main.originals != shifted(main.originals, 1, -1)
        strange = inside.sum(2) >= SURE_ROW
        if strange.mean() <= 0.01:
            strange = np.zeros(1)
        rows = main.is_output.any(2)
        yield never("rows of other calls", strange, rows, "of rows", "foreign-rows")
    if measured.alone:
        usual = "masked as others are"
        yield finding(
            "a batch of one window", measured.alone, usual, "1 call", "one-window"
        )


def check_epochs(main: Table) -> Iterator[Finding]:
    """Whether the second epoch of a loader shows the masks of the first."""
    shown = ((main.inputs == main.mask) & ~main.labelled & main.is_output).sum((1, 2))
    half = len(shown) // 2
    first = shown[:half].sum()
    second = shown[half:].sum()
    bug = "argument-modified" if second > 2 * first + MANY else None
    counts = f"{first:,}, and {second:,} in the second epoch"
    yield finding(
        "[MASK] without a label", counts, "as many", f"{len(shown):,} batches", bug
    )

    before, after = selected_twice(main)
    bug = None
    text = "not tested"
    if before.sum() > MANY:
        stay = (before & after).sum() / before.sum()
        more = after.sum() / before.sum()
        text = f"{stay:.0%} selected again, {more:.2f} times as many in all"
        bug = "argument-modified" if stay > 0.95 and more > 1.1 else None

    name = "masks of the first epoch in the second"
    yield finding(name, text, "new masks, as many", f"{before.size:,} positions", bug)


def selected_twice(main: Table) -> tuple[Array, Array]:
    """Which positions of the text are selected in the first and in the second epoch, of those that
    both have."""
    half = len(main.inputs) // 2
    n_places = int(main.source.max()) + 1
    exists = np.zeros((2, n_places), dtype=bool)
    selected = np.zeros((2, n_places), dtype=bool)

    for epoch, calls in enumerate((slice(0, half), slice(half, None))):
        source = main.source[calls]
        is_text = source >= 0
        exists[epoch, source[main.eligible[calls] & is_text]] = True
        selected[epoch, source[main.selected[calls] & is_text]] = True

    before, after = selected[:, exists.all(0)]
    return before, after


def check_inputs(measured: Measured) -> Iterator[Finding]:
    """Ids outside of the vocabulary, calls without masks, special tokens that are drawn as random
    ones, and the id of [MASK]."""
    main = measured.main
    tokens = main.tokens
    outside = (main.inputs < 0) | (main.inputs >= tokens.n_tokens)
    name = "ids outside vocabulary"
    yield never(name, outside, main.inputs.size, "of inputs", "out-of-vocabulary")

    counts = main.selected.sum((1, 2))
    sizes = main.eligible.sum((1, 2))
    expected = sizes * np.median(counts / np.maximum(1, sizes))
    unmasked = (counts == 0) & (expected > MANY)
    few = (counts > 0) & (counts < expected / 4)
    n_unmasked = unmasked.sum() if unmasked.sum() > few.sum() else 0
    yield never(
        "calls without masks", n_unmasked, len(counts), "of calls", "calls-unmasked"
    )

    drawn = main.inputs[main.randomized]
    special = np.isin(drawn, [id for id in tokens.special if id != main.mask])
    fields: dict[str, Any] = {}
    if special.sum() < HARMLESS * len(drawn):
        recipe = "BERT's own code, with 5 special of 30,522 tokens"
        fields = {"verdict": Verdict.DIFFERS, "recipes": (recipe,)}

    bug = "special-as-replacement"
    yield never("special among random", special, len(drawn), "special", bug, **fields)

    if main.masked.any() and 0 <= (main.mask or 0) < tokens.n_tokens:
        evidence = f"{main.masked.sum():,} of {main.selected.sum():,}"
        wanted = "a special id" if tokens.mask == main.mask else f"id {tokens.mask}"
        yield finding(
            "mask token", f"id {main.mask}", wanted, evidence, wrong_mask(main)
        )


def wrong_mask(main: Table) -> str | None:
    """The bug of the id that the target uses as [MASK]."""
    if main.mask == main.tokens.padding:
        return "mask-is-padding"
    if main.mask == main.tokens.unknown:
        return "unknown-as-mask"
    if main.mask in main.tokens.ordinary:
        return "mask-is-ordinary"
    return "mask-is-another" if main.mask != main.tokens.mask else None


def check_ids(main: Table) -> Finding:
    """Whether every ordinary id is selected at some time."""
    n_ids = max(main.tokens.n_tokens, int(main.originals.max()) + 1)
    counts = np.bincount(main.originals[main.eligible], minlength=n_ids)
    chosen = np.bincount(main.originals[main.selected], minlength=n_ids)
    used = counts * (chosen.sum() / max(1, counts.sum())) >= MANY
    missed = used & (chosen == 0) & (np.arange(n_ids) != main.ignored)
    examples = ", ".join(map(str, np.flatnonzero(missed)[:4]))
    fields: dict[str, Any] = {}
    if main.tokens.edges is None:  # they may be special
        fields = {"verdict": Verdict.DIFFERS, "cause": HINT}
    what = f"of ids, such as {examples}"
    return never("ids never selected", missed, used, what, "never-selected", **fields)


def check_extras(measured: Measured) -> Iterator[Finding]:
    """Whether another tensor of the first batches holds most of the hidden text, or marks what is
    selected."""
    ignored = measured.main.ignored
    first = [call for call in measured.answers if call.columns][:8]
    names: set[str] = set()
    for call in first:
        names.update(call.columns)

    for name in sorted(names):
        calls = [call for call in first if name in call.columns]
        part = np.concatenate([call.columns[name].ravel() for call in calls])
        inputs = np.concatenate([call.inputs.ravel() for call in calls])
        labels = np.concatenate([call.labels.ravel() for call in calls])
        changed = inputs != labels
        selected = changed if ignored is None else labels != ignored
        hidden = selected & changed
        if not hidden.any() or selected.all():
            continue
        is_copy = part[hidden] == labels[hidden]
        if is_copy.mean() > 0.9 and part.max() > 1:
            yield never(
                f"text in {name}", is_copy, hidden, "of hidden tokens", "text-in-batch"
            )
        elif name != ATTENTION and tells(part, selected):
            verdict = Verdict.BROKEN if name in MODEL_INPUTS else Verdict.DIFFERS
            bug = "selection-in-batch"
            yield never(
                f"selection in {name}",
                selected,
                selected,
                "marked",
                bug,
                verdict=verdict,
            )


def tells(part: Array, selected: Array) -> bool:
    """Whether a tensor has one value exactly where positions are selected, or where they are
    not."""
    is_first = part == part[selected][0]
    is_other = part != part[~selected][0]
    return bool((is_first == selected).all() or (is_other == selected).all())


def check_model_inputs(measured: Measured) -> Iterator[Finding]:
    """Whether the masks of a text change a model input.

    The first two passes have the same batches. Between them, an input must not differ where the
    selection does, nor as the number of selected positions so far does.
    """
    for name in MODEL_INPUTS:
        moves = moves_of_input(measured, name)
        if not moves[:2].any(1).all():
            continue
        related = np.corrcoef(moves)
        if np.abs(related[0, 1:]).max() > 0.5:
            n_changed = np.count_nonzero(moves[0])
            what = "changed by masks"
            yield never(
                f"masks in {name}", n_changed, moves.shape[1], what, "masks-in-inputs"
            )


def moves_of_input(measured: Measured, name: str) -> Array:
    """The differences between the first two passes, `[3, n]`: of an input, of the selection, and of
    the number of selected positions so far."""
    main = measured.main
    n = len(main.inputs) // measured.n_passes
    moves = [np.zeros((3, 1))]
    pairs = zip(measured.answers[:n], measured.answers[n : 2 * n], strict=False)

    for i, (one, two) in enumerate(pairs):
        has_both = name in one.columns and name in two.columns
        if has_both and np.array_equal(main.source[i], main.source[n + i]):
            rows, width = one.inputs.shape
            input = two.columns[name].astype(float) - one.columns[name]
            masks = (main.selected[n + i].astype(float) - main.selected[i])[
                :rows, :width
            ]
            moves.append(np.stack([input, masks, masks.cumsum(1)]).reshape(3, -1))

    return np.concatenate(moves[1:] or moves, axis=1)
