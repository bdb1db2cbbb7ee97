"""Checks that masks are new: in every call, window and worker, and the same for the same seed."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from auditing.finding import Finding, Verdict
from auditing.masks.catalogue import finding
from auditing.masks.measure import POOL, Measured
from auditing.masks.table import Table
from auditing.masks.target import Masked

MOST = 0.5  # a larger share of equal masks is not due to chance
FEWEST = 0.02  # a smaller share of equal neighbors in a batch is not reported
RELATED = 0.9  # the correlation of a window's selection with that of another one, moved, above which one is a copy


@dataclass(frozen=True)
class Repeats:
    """How the selections of calls are related."""

    in_all_calls: bool  # whatever the text is
    for_same_text: bool
    returning: float  # the share of calls whose selection is related to that of an earlier call with another text
    lag: int  # the most frequent distance of such calls

    def independent(self, table: Table) -> Table:
        """The part of the main text whose calls are independent."""
        if self.in_all_calls:
            rows = table.selected[0]
            alike = (rows[:-1] == rows[1:]).all(1).mean() if len(rows) > 1 else 0.0
            return table.part(slice(0, 1), one_window_each=alike < MOST)
        return table.part(slice(0, POOL // table.originals.shape[1])) if self.for_same_text else table


def repeats_of(main: Table) -> Repeats:
    """Correlate the selections of all pairs of calls, position by position; and of windows masked in several passes."""
    selected = main.selected - np.where(
        main.eligible, main.selected.sum(2, keepdims=True) / np.maximum(1, main.eligible.sum(2, keepdims=True)), 0.0
    )
    rows = selected.reshape(len(selected), -1).astype(np.float32)
    rows /= np.maximum(1e-6, np.sqrt((rows**2).sum(1, keepdims=True)))
    related = rows @ rows.T
    one, two = np.triu_indices(len(rows), 1)
    n_batches = max(1, len(rows) // 8)  # of a pass
    same_text = (two - one == n_batches) & (one < n_batches)
    others = related[one, two][~same_text]
    spread = 1.4826 * float(np.median(np.abs(others - np.median(others)))) if len(others) else 1.0
    back = others > np.median(others) + max(0.2, 8 * spread)
    one, two = one[~same_text], two[~same_text]
    lags = np.bincount((two - one)[back], minlength=1)
    alike = bool(len(others)) and float(np.median(others)) > MOST
    again = bool(same_text.any()) and float(np.median(related[np.arange(n_batches), np.arange(n_batches) + n_batches])) > MOST
    return Repeats(alike, again or by_window(main, selected), len(np.unique(two[back])) / len(rows), int(lags.argmax()))


def by_window(main: Table, selected: np.ndarray) -> bool:
    """Whether a window of the text has the same selection in the first and in the last pass."""
    n = len(selected) // 8
    if n < 1:
        return False
    size = int(main.source.max()) + 1
    passes = np.zeros((2, size))
    for values, part in zip(passes, (slice(0, n), slice(-n, None)), strict=True):
        places = main.source[part]
        values[places[places >= 0]] = selected[part][places >= 0]
    product = np.sqrt((passes**2).sum(1).prod())
    return bool(product > 0 and (passes[0] * passes[1]).sum() > MOST * product)


def check_repeats(measured: Measured, repeats: Repeats) -> Iterator[Finding]:
    """Dynamic or static masks, masks that return, equal masks in a batch, workers, and seeds."""
    main = measured.main
    line = "masks of another call", "new masks", f"{len(main.originals):,} calls"
    if repeats.in_all_calls:
        yield finding(line[0], "the same in all calls", *line[1:], "static-masks")
    elif repeats.for_same_text:
        must_be_new = (measured.options.recipe or "").lower() == "roberta"
        cause = "The same text gets the same masks in every epoch: they are stored, or seeded by the text."
        verdict = Verdict.BROKEN if must_be_new else Verdict.DIFFERS
        yield finding(line[0], "the same for the same text", *line[1:], "static-masks", verdict=verdict, cause=cause,
                      recipes=("BERT's prepared data",))  # fmt: skip
    elif repeats.returning > FEWEST:
        found = f"{repeats.returning:.0%} of calls repeat one {repeats.lag} calls before"
        yield finding(line[0], found, *line[1:], "masks-return")
    else:
        yield finding(line[0], *line[1:2], *line[1:])
    yield check_batch(main, repeats)
    if measured.workers is None:
        yield finding("workers and seeds", "not checked", "new masks per worker", "not asked for, or no fork")
        return
    yield check_workers(measured, repeats)
    pairs = [each for workers in zip(*measured.workers, strict=True) for each in zip(*workers, strict=True)]
    count = sum(equal(one, other) for one, other in pairs)
    bug = None if count == len(pairs) else "not-reproducible"
    yield finding("masks of the same seed", "different" if bug else "same", "same", f"{count} of {len(pairs)} calls", bug)


def check_batch(main: Table, repeats: Repeats) -> Finding:
    """Whether windows of one call have the same mask, or masks that are moved copies of each other."""
    first = main.part(slice(0, 8))
    one, other = first.selected[:, :-1], first.selected[:, 1:]
    ordinary = first.eligible[:, :-1] & first.eligible[:, 1:]
    same = ((one == other) | ~ordinary).all(2)[(one | other).any(2)]
    # Masks of few different forms repeat by chance, and then in other calls as often.
    chance = (first.selected[:-1] == first.selected[1:]).all(2)
    chance = 0.0 if repeats.in_all_calls else chance[first.selected[1:].any(2)].mean() if len(chance) else 0.0
    line = "masks in a batch", "all new", f"{int(same.sum()):,} of {len(same):,} pairs"
    if len(same) and same.mean() > max(FEWEST, 4 * chance):
        return finding(line[0], f"{same.mean():.0%} the same as in the next window", *line[1:], "same-mask-in-batch")
    copies, by_chance = copied(first, 0), copied(first, 0 if repeats.in_all_calls else 1)
    if copies > max(FEWEST, 4 * by_chance) and not repeats.in_all_calls:
        return finding(line[0], f"{copies:.0%} are copies of another window's, moved or not", *line[1:], "selected-by-rows")
    return finding(line[0], "all new", *line[1:])


def copied(table: Table, step: int) -> float:
    """The share of windows whose selection is that of another window of the same call, or of the call `step` later,
    moved by any number of columns: their largest circular correlation."""
    selected = np.where(table.eligible, table.selected - table.selected.mean(2, keepdims=True), 0.0)
    norms = np.sqrt((selected**2).sum(2, keepdims=True))
    spectra = np.fft.rfft(selected / np.maximum(norms, 1e-6), axis=2)
    count = 0
    for call in range(len(spectra)):
        other = spectra[(call + step) % len(spectra)]
        related = np.fft.irfft(spectra[call][:, None] * other[None].conj(), n=selected.shape[2], axis=2).max(2)
        count += ((related - (step == 0) * 2 * np.eye(len(related))).max(1, initial=0.0) > RELATED).sum()
    return float(count / max(1, selected.shape[0] * selected.shape[1]))


def equal(one: Masked, other: Masked) -> bool:
    return np.array_equal(one.inputs, other.inputs) and np.array_equal(one.labels, other.labels)


def check_workers(measured: Measured, repeats: Repeats) -> Finding:
    """Whether DataLoader workers select different positions of the same windows."""
    assert measured.workers is not None
    ignored = measured.reading.ignored
    changes = ignored is None or measured.reading.shift
    first = [calls[0].inputs if changes else calls[0].labels for calls in measured.workers[0]]
    same = np.concatenate([
        (one == other).all(1) if one.shape == other.shape else np.zeros(1, dtype=bool) for one, other in pairwise(first)
    ])  # fmt: skip
    line = "masks of two workers", f"{int(same.sum())} of {len(same)} windows"
    is_same = same.mean() > MOST
    is_static = repeats.in_all_calls or repeats.for_same_text
    if is_same and not is_static:
        return finding(line[0], "same", "different", line[1], "same-masks-per-worker")
    return finding(line[0], "same, as in every call" if is_same else "different", "different", line[1])
