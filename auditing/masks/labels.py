"""Checks that labels are the original ids at selected positions, and the ignored value, not an id, elsewhere."""

from collections.abc import Iterator

import numpy as np

from auditing.finding import Finding, Verdict
from auditing.masks.draws import Draws
from auditing.masks.measure import Measured
from auditing.masks.reading import NO_LABEL


def count_of(count: int, total: int) -> str:
    """An exact count as evidence."""
    return f"{count:,} of {total:,}"


def share(count: int, total: int) -> str:
    return f"{count / total:.2%}" if total else "none"


def broken_if(count: int, total: int, name: str, what: str, bug: str, cause: str) -> Finding:
    """A finding for positions that must not exist at all."""
    if count:
        found = f"{share(count, total)} {what}"
        return Finding(name, found, "none", count_of(count, total), Verdict.BROKEN, bug, cause)
    return Finding(name, "none", "none", count_of(count, total))


def check_labels(measured: Measured) -> Iterator[Finding]:
    """Everything about labels. If they do not say what is selected, checks that would only repeat it are left out."""
    main, reading = measured.main, measured.reading
    changed = int((main.changed & main.eligible).sum())
    if not changed and (main.labelled & main.eligible).any():
        cause = "Inputs are the text itself: the masks were never applied, or are applied to another copy."
        total = int((main.labelled & main.eligible).sum())
        yield Finding(
            "hidden positions", "none", "all selected", count_of(0, total), Verdict.BROKEN, "nothing-hidden", cause
        )
        return
    yield from check_meaning(measured)
    if not reading.by_changes:
        total = int((main.changed & main.eligible).sum())
        if main.labelled.any():
            missing = main.changed & main.eligible & ~main.labelled
            bug = "changed-without-label"
            cause = "Inputs are replaced at positions that are not predicted: corruption and labels use other draws."
            if all_on_one_side(missing, main.selected):
                bug = "left-truncated"
                cause = "A list of labels of fixed length: what does not fit is cut off, but stays masked."
            yield broken_if(int(missing.sum()), total, "changed without label", "of changes", bug, cause)
        yield ignored_label(measured)
        yield from check_special(measured)


def all_on_one_side(missing: np.ndarray, labelled: np.ndarray) -> bool:
    """Whether, in all windows with both, the missing labels are left of all others, or right of all others."""
    both = missing.any(2) & labelled.any(2)
    if not both.any():
        return False
    width = missing.shape[2]
    missing, labelled = missing[both], labelled[both]
    last, first = width - 1 - missing[:, ::-1].argmax(1), missing.argmax(1)
    return bool((last < labelled.argmax(1)).all() or (first > width - 1 - labelled[:, ::-1].argmax(1)).all())


def check_meaning(measured: Measured) -> Iterator[Finding]:
    """Whether the labels are the originals, at the selected positions and nowhere else."""
    main, reading = measured.main, measured.reading
    name = "labels where selected"
    if reading.ignored is None:
        total = int(main.eligible.sum())
        cause = "The loss counts visible tokens, which the model copies: set labels to the ignored value elsewhere."
        found = f"also at {share(int((~main.changed & main.eligible).sum()), total)} unchanged"
        evidence = count_of(total, total)
        yield Finding("labels elsewhere", found, "ignored", evidence, Verdict.BROKEN, "labels-everywhere", cause)
        return
    if reading.shift:
        cause = "Labels or masks were shifted, as for a causal model, or [CLS] was added to only one of them."
        found = f"{reading.shift:+d} position{'s' * (abs(reading.shift) > 1)} off"
        count, total = int((main.changed & main.labelled).sum()), int(main.changed.sum())
        yield Finding(name, found, "original ids", count_of(count, total), Verdict.BROKEN, "labels-shifted", cause)
        return
    where = main.labelled & main.eligible
    total, wrong = int(where.sum()), int((where & (main.labels != main.originals)).sum())
    bug, cause = "labels-wrong", "Labels are neither the originals nor the inputs."
    replaced = where & main.changed
    if wrong and (main.labels == main.inputs)[replaced].mean() > 0.9:
        bug, cause = "labels-corrupted", "Labels were taken after masking, or share memory with the masked inputs."
    elif wrong and np.iinfo(measured.label_dtype).max < main.tokens.n_tokens - 1:
        bug, cause = "dtype-overflow", f"{measured.label_dtype} cannot hold ids up to {main.tokens.n_tokens - 1}."
    if wrong:
        yield Finding(
            name, f"{share(wrong, total)} wrong", "original ids", count_of(wrong, total), Verdict.BROKEN, bug, cause
        )
    else:
        yield Finding(name, "original ids", "original ids", count_of(wrong, total))


def ignored_label(measured: Measured) -> Finding:
    """The label of positions that were not selected, and whether a text can contain it."""
    main, ignored, stated = measured.main, measured.reading.ignored, measured.options.ignored
    tokens = main.tokens
    assert ignored is not None
    name, found = "ignored label", str(ignored)
    count = int((main.eligible & (main.originals == ignored)).sum())
    evidence = f"{count:,} times in the text"
    if count:
        cause = f"Id {ignored} is an ordinary token: where it is selected, its label is ignored, so it is never learnt."
        return Finding(name, found, "no token's id", evidence, Verdict.BROKEN, "padding-is-character", cause)
    if stated is not None and ignored != stated:
        cause = f"The loss ignores {stated}, so it counts, or fails on, every position that was not selected."
        return Finding(name, found, str(stated), evidence, Verdict.BROKEN, "wrong-ignored-label", cause)
    if ignored in (NO_LABEL, stated) or (ignored == tokens.padding and measured.facts.kind == "tensor"):
        return Finding(name, found, found, evidence)
    bug = "ignored-in-vocabulary" if 0 <= ignored < tokens.n_tokens else "wrong-ignored-label"
    cause = f"PyTorch's and Transformers' losses ignore {NO_LABEL}. Right only for a loss with ignore_index={ignored}."
    return Finding(name, found, str(NO_LABEL), evidence, Verdict.DIFFERS, bug, cause)


def check_special(measured: Measured) -> Iterator[Finding]:
    """Whether padding or special tokens are selected."""
    sets = [measured.main, measured.long, *([measured.ragged] if measured.ragged else [])]
    if measured.ragged is not None:
        padding = ~measured.ragged.real
        count = int((padding & (measured.ragged.labelled | measured.ragged.changed)).sum())
        cause = (
            "Padding is masked or predicted: exclude the padding id, or read the attention mask the right way round."
        )
        yield broken_if(count, int(padding.sum()), "padding selected", "of padding", "padding-labelled", cause)
    counts = [special_positions(draws) for draws in sets]
    total = sum(int(special.sum()) for special in counts)
    if total:
        count = sum(
            int((special & (draws.labelled | draws.changed)).sum()) for special, draws in zip(counts, sets, strict=True)
        )
        cause = "Tokens such as [CLS] and [SEP] are masked: exclude all special ids when positions are drawn."
        yield broken_if(count, total, "special tokens selected", "of them", "special-selected", cause)


def special_positions(draws: Draws) -> np.ndarray:
    """Special tokens other than padding and the unknown token, which some recipes mask."""
    tokens = draws.tokens
    ids = [id for id in tokens.special if id not in (tokens.padding, tokens.unknown)]
    return draws.real & np.isin(draws.originals, ids)


def check_arguments(measured: Measured) -> Iterator[Finding]:
    """Whether the target changes its argument, and whether its attention mask hides what it masked."""
    cause = "The caller's ids are overwritten: a text that is masked twice loses its originals. Clone the argument."
    total, count = measured.n_calls, measured.n_modified
    yield broken_if(count, total, "argument modified", "of calls", "argument-modified", cause)
    attention = measured.main.attention
    if attention is not None:
        selected = measured.main.selected
        count = int((selected & (attention == 0)).sum())
        cause = "attention_mask is 0 at masked positions: the model does not see that a token is missing there."
        yield broken_if(count, int(selected.sum()), "attention at masks", "hidden", "attention-hides-mask", cause)
    ids = measured.main.inputs
    count = int(((ids < 0) | (ids >= measured.main.tokens.n_tokens)).sum())
    cause = (
        "Inputs hold ids that no embedding has: n_tokens does not count all special tokens, or draws go one too far."
    )
    yield broken_if(count, ids.size, "ids outside vocabulary", "of inputs", "out-of-vocabulary", cause)
