"""Calls a target with every text of an audit of masks: over a million positions in windows of many kinds."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from auditing.errors import TargetError
from auditing.masks.calls import CAN_FORK, Facts
from auditing.masks.table import Table, aligned, collect, stacked
from auditing.masks.target import Masked
from auditing.masks.texts import Text
from auditing.masks.tokens import MaskOptions

BATCH = 32
WIDTH, POOL, PASSES = 128, 1024, 8  # the main text: 1,024 windows, each masked eight times
OTHERS = {"long": (768, 512), "padded": (1024, 64)}  # texts in calls of 16 windows; padded: of 3 to 64 tokens
WIDTHS = (4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 32, 43, 50, 64, 86)  # of unpadded windows; two calls each
CALLS_PER_WORKER = 2
N_CALLS = 400  # about, in units of calls for the main text
LONG_WAIT = 30.0  # seconds
N_BATCHES = 128  # of a loader's epoch

Call = Callable[..., Any]


@dataclass(frozen=True)
class Measured:
    """All tables of an audit."""

    options: MaskOptions
    facts: Facts
    main: Table  # full windows, over a million positions. Its first two passes have the same batches
    answers: Sequence[Masked]  # of all calls
    others: dict[str, Table]  # long: windows of 512 tokens; padded: of 3 to 64 tokens, unless padding is unknown
    widths: Sequence[Table] = ()  # unpadded windows, a table for each width
    workers: Sequence[list[list[Masked]]] = ()  # [twice with the same seed][worker][call], if asked for


def measure(call: Call, options: MaskOptions, report: Callable[[str], None]) -> Measured:
    """Measure a target through `call(name, *arguments)`, which reaches the functions of `auditing.masks.calls`.

    `report` gets a line if that takes long. Raises TargetError if the target cannot be called, or is no masker.
    """
    facts: Facts = call("probe", options)
    text = call("write", "main", POOL, WIDTH, False, options.seed)
    workers = []
    if options.workers and CAN_FORK:  # first: a masker's own generator is still unused
        draw = ("mask_in_workers", "main", np.arange(BATCH), options.workers, CALLS_PER_WORKER, options.seed)
        workers = [call(*draw), call(*draw)]
    call("seed", options.seed)
    answers: list[Masked] = []

    def masked(name: str, text: Any, rows: Sequence[np.ndarray]) -> Table:
        began = time.monotonic()
        for number, some in enumerate(rows):
            answers.append(call("mask", name, some))
            remaining = (time.monotonic() - began) / (number + 1) * N_CALLS
            if len(answers) == 8 and remaining > LONG_WAIT:
                report(f"the target is slow: about {remaining:.0f} s to go")
        return collect(text, rows, answers[-len(rows) :], facts.tokens)

    def written(name: str, n_windows: int, width: int, batch: int) -> Table:
        rows = np.split(np.arange(n_windows), n_windows // batch)
        table = masked(name, call("write", name, n_windows, width, name == "padded", options.seed), rows)
        return replace(table, tokens=main.tokens, mask=main.mask, ignored=main.ignored, shift=main.shift)

    rng = np.random.default_rng(options.seed)
    orders = [rng.permutation(POOL) for _ in range(PASSES - 1)]
    main = masked(
        "main", text, [part for order in (orders[0], *orders) for part in np.split(order, POOL // BATCH)]
    ).read()
    require_labels_in_vocabulary(main, answers[0].dtype)
    sizes = {name: size for name, size in OTHERS.items() if name != "padded" or facts.tokens.padding is not None}
    others = {name: written(name, *size, BATCH // 2) for name, size in sizes.items()}
    widths = [written(f"width {width}", 2 * BATCH, width, BATCH) for width in WIDTHS]
    return Measured(options, facts, main, answers, others, widths, workers)


def measure_batches(call: Call, options: MaskOptions) -> Measured:
    """The batches of a loader, through the functions of `auditing.masks.loader`, in two epochs of different seeds."""
    facts: Facts = call("facts", options)
    tokens, columns, answers = facts.tokens, [], []
    for epoch in range(2):
        for answer, ids in call("batches", N_BATCHES, options.seed + epoch, tokens.padding):
            if ids is None:  # labels are all that is known of the originals
                named = (answer.labels >= 0) & (answer.labels < tokens.n_tokens) & (answer.labels != tokens.ignored)
                known = np.where(named, answer.labels, answer.inputs)
                ids = (
                    np.where(known == tokens.mask, tokens.padding or 0, known) if tokens.padding is not None else known
                )
            real = ids != tokens.padding if tokens.padding is not None else np.ones_like(ids, dtype=bool)
            columns.append(aligned(Text(ids, real), np.arange(len(ids)), answer, tokens))
            answers.append(answer)
    return Measured(options, facts, stacked(columns, tokens).read(), answers, {})


def require_labels_in_vocabulary(table: Table, dtype: str) -> None:
    """Raises TargetError if labels are outside the vocabulary, unless their type is too small for the vocabulary."""
    n_tokens = table.tokens.n_tokens
    allowed = (table.labels >= 0) & (table.labels < n_tokens) | ~table.labelled | ~table.eligible
    if not allowed.all() and np.iinfo(dtype).max >= n_tokens - 1:
        wrong, shape = np.unique(table.labels[~allowed]), list(table.labels.shape[1:])
        raise TargetError(
            f"called with ids {shape} below n_tokens = {n_tokens}, the target returned labels {shape} outside the "
            f"vocabulary, such as {wrong[0]}: {(~allowed).sum():,} of {allowed.size:,}"
        )
