"""Calls a target with every text of an audit of masks: over a million positions in windows of many kinds."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from auditing.errors import TargetEnded, TargetError
from auditing.masks.calls import PROBE, Facts
from auditing.masks.draws import Draws, collect
from auditing.masks.reading import Reading, read
from auditing.masks.target import Masked
from auditing.masks.tokens import MaskOptions

BATCH = 32
WIDTH, POOL, PASSES = 128, 1024, 8  # the main text: 1,024 windows, each masked eight times in other company
RAGGED_WIDTH, LONG_WIDTH = 64, 512
RAGGED_CALLS, LONG_CALLS, REPEATS = 32, 24, 8
WIDTHS = (4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 32, 43, 50, 64, 86)  # of unpadded windows; two calls each
CALLS_PER_WORKER = 2
N_CALLS = 400  # about, in units of calls for the main text
LONG_WAIT = 30.0  # seconds

Call = Callable[..., Any]


@dataclass(frozen=True)
class Measured:
    """All draws of an audit."""

    options: MaskOptions
    facts: Facts
    reading: Reading
    main: Draws  # full windows, over a million positions; only the independent ones if masks repeat
    n_positions: int  # masked for the main text
    n_modified: int  # calls whose argument was modified in place
    n_calls: int
    label_dtype: str
    originals: np.ndarray  # [batch, width] what the workers were called with
    repeats: tuple[Draws, Draws]  # the same windows masked twice in a row
    first: Draws  # the main text's first calls, with other windows each
    long: Draws  # windows of 512 tokens
    ragged: Draws | None  # windows of 3 to 64 tokens with padding; None if the padding id is unknown
    widths: dict[int, Draws]  # unpadded windows by their width
    workers: list[list[Masked]] | None  # [worker][call], the same windows; None if not asked for
    workers_again: list[list[Masked]] | None  # the same with the same seed


def measure(call: Call, options: MaskOptions, report: Callable[[str], None]) -> Measured:
    """Measure a target through `call(name, *arguments)`, which reaches the functions of `auditing.masks.calls`.

    `report` gets a line if that takes long.

    Raises TargetError if the target cannot be called, or returns what no masker returns.
    """
    call = with_shapes(call)
    facts: Facts = call("probe", options)
    text = call("write", "main", POOL, WIDTH, False, options.seed)
    workers, again = None, None
    first_rows = np.arange(BATCH)
    first_ids = text.ids[first_rows]
    if options.workers and facts.can_fork:  # first: a masker's own generator is still unused
        draw = ("mask_in_workers", "main", first_rows, options.workers, CALLS_PER_WORKER, options.seed)
        workers, again = call(*draw), call(*draw)
    call("seed", options.seed)
    n_modified = n_calls = 0
    dtype = ""

    def draws_of(name: str, text: Any, rows: Sequence[np.ndarray]) -> Draws:
        nonlocal n_modified, n_calls, dtype
        answers = [call("mask", name, some) for some in rows]
        n_modified += sum(answer.is_modified for answer in answers)
        n_calls += len(answers)
        dtype = answers[0].dtype
        left = not text.real[:, 0].all()
        return collect(text, rows, answers, facts.tokens, left)

    def written(name: str, n_windows: int, width: int, is_ragged: bool = False) -> Draws:
        rows = np.split(np.arange(n_windows), n_windows // BATCH)
        return draws_of(name, call("write", name, n_windows, width, is_ragged, options.seed), rows)

    repeated = [np.arange(BATCH * i, BATCH * (i + 1)) for i in range(REPEATS) for _ in range(2)]
    began = time.monotonic()
    repeats = draws_of("main", text, repeated)
    remaining = (time.monotonic() - began) / len(repeated) * N_CALLS
    if remaining > LONG_WAIT:
        report(f"the target is slow: about {remaining:.0f} s to go")
    rng = np.random.default_rng(options.seed)
    rows = [part for _ in range(PASSES) for part in np.split(rng.permutation(POOL), POOL // BATCH)]
    main = draws_of("main", text, rows)
    reading = read(main, facts.tokens)
    main = reading.of(main)
    require_labels_in_vocabulary(main, dtype)
    repeats = reading.of(repeats)
    pair = (repeats.part(slice(0, None, 2)), repeats.part(slice(1, None, 2)))
    long = reading.of(written("long", BATCH * LONG_CALLS, LONG_WIDTH))
    has_padding = facts.tokens.padding is not None
    ragged = reading.of(written("ragged", BATCH * RAGGED_CALLS, RAGGED_WIDTH, True)) if has_padding else None
    widths = {width: reading.of(written(f"width {width}", 2 * BATCH, width)) for width in WIDTHS}
    first = main.part(slice(0, REPEATS))
    independent = repetition(pair, first)
    return Measured(
        options, facts, reading, independent(main), main.n_positions, n_modified, n_calls, dtype, first_ids,
        pair, first, independent(long), ragged and independent(ragged), widths, workers, again,
    )  # fmt: skip


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


def require_labels_in_vocabulary(draws: Draws, dtype: str) -> None:
    """Raises TargetError if labels are outside the vocabulary, unless their type is too small for the vocabulary."""
    n_tokens = draws.tokens.n_tokens
    allowed = (draws.labels >= 0) & (draws.labels < n_tokens) | ~draws.labelled | ~draws.eligible
    if allowed.all() or np.iinfo(dtype).max < n_tokens - 1:
        return
    wrong = np.unique(draws.labels[~allowed])
    shape = list(draws.labels.shape[1:])
    raise TargetError(
        f"called with ids {shape} below n_tokens = {n_tokens}, the target returned labels {shape} outside the "
        f"vocabulary, such as {wrong[0]}: {(~allowed).sum():,} of {allowed.size:,}"
    )


def same_selection(one: Draws, other: Draws) -> np.ndarray:
    """Whether two draws of windows select the same positions, for windows in which either selects any; 1-D."""
    any_selected = (one.selected | other.selected).any(axis=2)
    return (one.selected == other.selected).all(axis=2)[any_selected]


def repeats_by_call(first: Draws) -> bool:
    """Whether calls with different windows get the same masks."""
    if len(first.originals) < 2:
        return False
    same = same_selection(first.part(slice(0, -1)), first.part(slice(1, None)))
    return len(same) > 0 and same.mean() > 0.5


def repeats_in_batch(first: Draws) -> np.ndarray:
    """Whether neighboring windows of a call have the same masks, for those in which either selects any; 1-D."""
    one, other = first.selected[:, :-1], first.selected[:, 1:]
    ordinary = first.eligible[:, :-1] & first.eligible[:, 1:]
    return ((one == other) | ~ordinary).all(2)[(one | other).any(2)]


def repetition(pair: tuple[Draws, Draws], first: Draws) -> Callable[[Draws], Draws]:
    """A function that keeps the independent draws: all, or those of one call or of one pass if masks repeat."""
    if repeats_by_call(first):
        in_batch = repeats_in_batch(first)
        return lambda draws: draws.part(slice(0, 1), one_window_each=not len(in_batch) or in_batch.mean() < 0.5)
    same = same_selection(*pair)
    if len(same) and same.mean() > 0.5:
        return lambda draws: draws.part(slice(0, POOL // BATCH))
    return lambda draws: draws
