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
# The main text: 1,024 windows, each masked eight times.
WIDTH = 128
POOL = 1024
PASSES = 8
# Windows, their width, and passes of other texts in calls of an odd number of windows, because every
# other window has special tokens: so each row has both kinds. Those of the padded one have 3 to 64
# tokens, the short ones an odd number.
OTHER_BATCH = 15
OTHERS = {"long": (195, 512, 3), "short": (510, 5, 1), "padded": (1020, 64, 1)}
CALLS_PER_WORKER = 2
# Batches that are read per epoch of a loader, and epochs.
N_BATCHES = 128
EPOCHS = 2

Call = Callable[..., Any]


@dataclass(frozen=True)
class Measured:
    """All tables of an audit."""

    options: MaskOptions
    facts: Facts
    main: Table  # full windows, a million positions; the first two passes have the same batches
    answers: Sequence[Masked]  # of all calls
    others: dict[str, Table]  # of OTHERS; without `padded` if padding is unknown
    alone: str = ""  # what is wrong with a batch of one window
    # [twice with the same seed][worker][call]; empty if workers are not asked for
    workers: Sequence[list[list[Masked]]] = ()
    n_passes: int = PASSES  # of the main table over its text
    knows_texts: bool = True  # before they were masked


class Measurement:
    """Calls a masker through `call(name, *arguments)`, which reaches the methods of
    `auditing.masks.calls.Service`, and keeps the texts and all answers."""

    def __init__(self, call: Call, options: MaskOptions):
        """Raises TargetError if the target cannot be called."""
        self.call = call
        self.seed = options.seed
        self.facts: Facts = call("probe", options)
        self.answers: list[Masked] = []
        self.texts: dict[str, Text] = {}

    def write(self, name: str, n_windows: int, width: int) -> None:
        """Have a text written."""
        is_ragged = name == "padded"
        self.texts[name] = self.call(
            "write", name, n_windows, width, is_ragged, self.seed
        )

    def masked(self, name: str, batches: Sequence[Array] | Array) -> Table:
        """The table of calls with batches of rows of a text."""
        calls = []
        for rows in batches:
            answer = self.call("mask", name, rows)
            self.answers.append(answer)
            calls.append(aligned(self.texts[name], rows, answer, self.facts.tokens))
        return stacked(calls, self.facts.tokens)

    def in_workers(self, n_workers: int) -> list[list[Masked]]:
        """The first windows of the main text, masked by workers."""
        rows = np.arange(BATCH)
        return self.call(
            "mask_in_workers", "main", rows, n_workers, CALLS_PER_WORKER, self.seed
        )

    def of_one_window(self) -> str:
        """The reason why a batch of one window cannot be masked; empty if it can."""
        try:
            self.call("mask", "main", np.arange(1))
        except TargetError as error:
            return str(error)
        return ""


def measure(call: Call, options: MaskOptions, **widths: int) -> Measured:
    """Measure a masker. `widths` are those of texts with other windows than usual.

    Raises TargetError if it cannot be called, or does not mask.
    """
    target = Measurement(call, options)
    target.write("main", POOL, widths.get("main", WIDTH))
    workers = []
    if options.workers:  # first: a masker's own generator is still unused
        workers = [target.in_workers(options.workers) for _ in range(2)]
    call("seed", options.seed)

    rng = np.random.default_rng(options.seed)
    orders = [rng.permutation(POOL).reshape(-1, BATCH) for _ in range(PASSES - 1)]
    main = target.masked("main", np.concatenate([orders[0], *orders])).read()
    others = {}

    for name, (n_windows, width, passes) in OTHERS.items():
        if name == "padded" and target.facts.tokens.padding is None:
            continue
        target.write(name, n_windows, widths.get(name, width))
        rows = np.tile(np.arange(n_windows), passes).reshape(-1, OTHER_BATCH)
        # With the conventions that the main text showed.
        others[name] = replace(
            target.masked(name, rows),
            tokens=main.tokens,
            mask=main.mask,
            ignored=main.ignored,
            shift=main.shift,
        )

    alone = target.of_one_window()
    return Measured(options, target.facts, main, target.answers, others, alone, workers)


def measure_batches(call: Call, options: MaskOptions) -> Measured:
    """The batches of a loader, through the methods of `auditing.masks.loader.Service`, in epochs of
    different seeds."""
    facts: Facts = call("facts", options)
    tokens = facts.tokens
    columns = []
    answers = []
    # the place of each text, which is the same in both epochs
    begins: dict[bytes, int] = {}
    n_places = 0
    knows_texts = True

    for epoch in range(EPOCHS):
        for answer, ids in call(
            "batches", N_BATCHES, options.seed + epoch, tokens.padding
        ):
            if ids is None:
                knows_texts = False
                ids = tokens.originals(answer.inputs, answer.labels)
            real = np.ones(ids.shape, dtype=bool)
            if tokens.padding is not None:
                real = spanned(ids != tokens.padding)
            column: dict[str, Any] = aligned(
                Text(ids, real), np.arange(len(ids)), answer, tokens
            )
            width = ids.shape[1]
            begin = -real.argmax(1)
            for i, row in enumerate(ids):
                begin[i] += begins.setdefault(
                    row[real[i]].tobytes(), n_places + i * width
                )
            n_places += ids.size
            row, place = np.divmod(column["source"], width)
            is_text = column["real"] & (row >= 0)
            column["source"] = np.where(is_text, begin[row] + place, -1)
            columns.append(column)
            answers.append(answer)

    main = stacked(columns, tokens).read()
    return Measured(
        options, facts, main, answers, {}, n_passes=EPOCHS, knows_texts=knows_texts
    )
