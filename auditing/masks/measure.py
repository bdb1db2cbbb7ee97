"""Calls a target with every text of an audit of masks: over a million positions in windows of many
kinds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from auditing.errors import TargetError
from auditing.masks.table import Table, aligned, spanned, stacked
from auditing.masks.texts import Masked, Text
from auditing.masks.tokens import Facts, MaskOptions
from auditing.statistics import Array

BATCH = 32
WIDTH, POOL, PASSES = 128, 1024, 8  # the main text: 1,024 windows, each masked eight times
# Windows, their width, and passes of other texts in calls of an odd number of windows, because
# every other window has special tokens: so each row has both kinds. Those of the padded one have 3
# to 64 tokens, the short ones an odd number.
OTHER_BATCH = 15
OTHERS = {"long": (195, 512, 3), "short": (510, 5, 1), "padded": (1020, 64, 1)}
CALLS_PER_WORKER = 2  # of a DataLoader
N_BATCHES, EPOCHS = 128, 2  # batches that are read per epoch of a loader, and epochs

Call = Callable[..., Any]


@dataclass(frozen=True)
class Measured:
    """All tables of an audit."""

    options: MaskOptions
    facts: Facts
    main: (
        Table  # full windows, over a million positions. Its first two passes have the same batches
    )
    answers: Sequence[Masked]  # of all calls
    others: dict[str, Table]  # of OTHERS; without `padded` if padding is unknown
    alone: str = ""  # what is wrong with a batch of one window
    workers: Sequence[
        list[list[Masked]]
    ] = ()  # [twice with the same seed][worker][call], if asked for
    n_passes: int = PASSES  # of the main table over its text
    knows_texts: bool = True  # before they were masked


def measure(call: Call, options: MaskOptions) -> Measured:
    """Measure a target through `call(name, *arguments)`, which reaches the methods of
    `auditing.masks.calls.Service`.

    Raises TargetError if the target cannot be called, or does not mask.
    """
    facts: Facts = call("probe", options)
    texts = {"main": call("write", "main", POOL, WIDTH, False, options.seed)}
    workers, answers, rng = [], list[Masked](), np.random.default_rng(options.seed)
    if options.workers:  # first: a masker's own generator is still unused
        draw = (
            "mask_in_workers",
            "main",
            np.arange(BATCH),
            options.workers,
            CALLS_PER_WORKER,
            options.seed,
        )
        workers = [call(*draw), call(*draw)]
    call("seed", options.seed)

    def masked(name: str, rows: Sequence[Array] | Array) -> Table:
        """The answers of calls with some rows of a text."""
        calls = [(some, call("mask", name, some)) for some in rows]
        answers.extend(answer for _, answer in calls)
        return stacked(
            [aligned(texts[name], some, answer, facts.tokens) for some, answer in calls],
            facts.tokens,
        )

    def written(name: str, n_windows: int, width: int, passes: int) -> Table:
        """All windows of a text, each masked `passes` times, with the conventions that the main
        text showed."""
        texts[name] = call("write", name, n_windows, width, name == "padded", options.seed)
        table = masked(name, np.tile(np.arange(n_windows), passes).reshape(-1, OTHER_BATCH))
        return replace(
            table, tokens=main.tokens, mask=main.mask, ignored=main.ignored, shift=main.shift
        )

    orders = [rng.permutation(POOL).reshape(-1, BATCH) for _ in range(PASSES - 1)]
    main = masked("main", [*orders[0], *np.concatenate(orders)]).read()
    sizes = {
        name: size
        for name, size in OTHERS.items()
        if name != "padded" or facts.tokens.padding is not None
    }
    others = {name: written(name, *size) for name, size in sizes.items()}
    alone = ""
    try:
        call("mask", "main", np.arange(1))
    except TargetError as error:
        alone = str(error)
    return Measured(options, facts, main, answers, others, alone, workers)


def measure_batches(call: Call, options: MaskOptions) -> Measured:
    """The batches of a loader, through the methods of `auditing.masks.loader.Service`, in epochs of
    different seeds."""
    facts: Facts = call("facts", options)
    tokens, columns, answers, begins, n = facts.tokens, [], [], dict[bytes, int](), 0
    knows_texts = True
    for epoch in range(EPOCHS):
        for answer, ids in call("batches", N_BATCHES, options.seed + epoch, tokens.padding):
            knows_texts &= ids is not None
            ids = tokens.originals(answer.inputs, answer.labels) if ids is None else ids
            real = (
                np.ones_like(ids, dtype=bool)
                if tokens.padding is None
                else spanned(ids != tokens.padding)
            )
            column: dict[str, Any] = aligned(Text(ids, real), np.arange(len(ids)), answer, tokens)
            of_text = [
                begins.setdefault(ids[i, real[i]].tobytes(), n + i * ids.shape[1])
                for i in range(len(ids))
            ]
            begin, n = np.array(of_text) - real.argmax(1), n + ids.size
            row, place = np.divmod(
                column["source"], ids.shape[1]
            )  # the same text has the same place in both epochs
            column["source"] = np.where(column["real"] & (row >= 0), begin[row] + place, -1)
            columns.append(column)
            answers.append(answer)
    main = stacked(columns, tokens).read()
    return Measured(options, facts, main, answers, {}, n_passes=EPOCHS, knows_texts=knows_texts)
