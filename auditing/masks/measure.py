"""Calls a target with every text of an audit of masks: over a million positions in windows of many kinds."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from auditing.errors import TargetEnded, TargetError
from auditing.masks.calls import CAN_FORK, PROBE, Facts
from auditing.masks.reading import Reading, read
from auditing.masks.table import Table, collect
from auditing.masks.target import Masked
from auditing.masks.tokens import MaskOptions

BATCH = 32
WIDTH, POOL, PASSES = 128, 1024, 8  # the main text: 1,024 windows, each masked eight times
OTHERS = {"long": (768, 512), "ragged": (1024, 64)}  # texts in calls of 16 windows; ragged: 3 to 64 tokens
WIDTHS = (4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 32, 43, 50, 64, 86)  # of unpadded windows; two calls each
CALLS_PER_WORKER = 2
N_CALLS = 400  # about, in units of calls for the main text
LONG_WAIT = 30.0  # seconds

Call = Callable[..., Any]


@dataclass(frozen=True)
class Measured:
    """All tables of an audit."""

    options: MaskOptions
    facts: Facts
    reading: Reading
    main: Table  # full windows, over a million positions. Its first two passes have the same batches
    answers: Sequence[Masked]  # of all calls
    long: Table | None = None  # windows of 512 tokens
    ragged: Table | None = None  # windows of 3 to 64 tokens with padding; None if the padding id is unknown
    widths: Sequence[Table] = ()  # unpadded windows, a table for each width
    workers: list[list[list[Masked]]] | None = None  # [twice with the same seed][worker][call]; None if not asked for
    originals: np.ndarray | None = None  # [batch, width] what the workers were called with

    @property
    def tables(self) -> list[Table]:
        """The tables of long texts, with padding first."""
        return [table for table in (self.ragged, self.main, self.long) if table is not None]

    @property
    def label_dtype(self) -> str:
        return self.answers[0].dtype


def measure(call: Call, options: MaskOptions, report: Callable[[str], None]) -> Measured:
    """Measure a target through `call(name, *arguments)`, which reaches the functions of `auditing.masks.calls`.

    `report` gets a line if that takes long. Raises TargetError if the target cannot be called, or returns what no masker
    returns.
    """
    call = with_shapes(call)
    facts: Facts = call("probe", options)
    text = call("write", "main", POOL, WIDTH, False, options.seed)
    first_rows = np.arange(BATCH)
    workers = None
    if options.workers and CAN_FORK:  # first: a masker's own generator is still unused
        draw = ("mask_in_workers", "main", first_rows, options.workers, CALLS_PER_WORKER, options.seed)
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
        return masked(name, call("write", name, n_windows, width, name == "ragged", options.seed), rows)

    rng = np.random.default_rng(options.seed)
    orders = [rng.permutation(POOL) for _ in range(PASSES - 1)]
    rows = [part for order in (orders[0], *orders) for part in np.split(order, POOL // BATCH)]
    main = masked("main", text, rows)
    reading = read(main, facts.tokens)
    main = reading.of(main)
    require_labels_in_vocabulary(main, answers[0].dtype)
    sizes = {name: size for name, size in OTHERS.items() if name != "ragged" or facts.tokens.padding is not None}
    others = {name: reading.of(written(name, *size, BATCH // 2)) for name, size in sizes.items()}
    widths = [reading.of(written(f"width {width}", 2 * BATCH, width, BATCH)) for width in WIDTHS]
    return Measured(options, facts, reading, main, answers, others["long"], others.get("ragged"), widths, workers,
                    text.ids[first_rows])  # fmt: skip


def with_shapes(call: Call) -> Call:
    """The same calls; if the target's process ends in one, the error says with which shape it was called."""
    widths: dict[str, int] = {}

    def calling(name: str, *arguments: Any) -> Any:
        try:
            result = call(name, *arguments)
        except TargetEnded as error:
            rows = arguments[1] if name in ("mask", "mask_in_workers") else ()
            shape = [len(rows), widths[arguments[0]]] if len(rows) else list(PROBE)
            raise TargetError(f"called with ids int64 {shape}: {error}") from error
        if name == "write":
            widths[arguments[0]] = arguments[2]
        return result

    return calling


def require_labels_in_vocabulary(table: Table, dtype: str) -> None:
    """Raises TargetError if labels are outside the vocabulary, unless their type is too small for the vocabulary."""
    n_tokens = table.tokens.n_tokens
    allowed = (table.labels >= 0) & (table.labels < n_tokens) | ~table.labelled | ~table.eligible
    if allowed.all() or np.iinfo(dtype).max < n_tokens - 1:
        return
    wrong, shape = np.unique(table.labels[~allowed]), list(table.labels.shape[1:])
    raise TargetError(
        f"called with ids {shape} below n_tokens = {n_tokens}, the target returned labels {shape} outside the "
        f"vocabulary, such as {wrong[0]}: {(~allowed).sum():,} of {allowed.size:,}"
    )
