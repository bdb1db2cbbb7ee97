"""Checks that masks are new: in every call, window and worker, and the same for the same seed."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from auditing.finding import Finding, Verdict
from auditing.masks.catalogue import finding
from auditing.masks.measure import PASSES, Measured
from auditing.masks.table import Table

MOST = 0.5  # a larger share of equal masks is not due to chance
FEWEST = 0.02  # a smaller share of equal masks is not reported
RELATED = 0.9  # the correlation of a window's selection with that of another one, moved, above which one is a copy
ENOUGH = 8  # selected and other positions of a window whose mask does not repeat by chance


@dataclass(frozen=True)
class Repeats:
    """How the selections of calls are related."""

    in_all_calls: bool  # whatever the text is
    for_same_text: bool
    returning: float  # the share of calls whose selection is that of an earlier call with another text
    lag: int  # the most frequent distance of such calls

    def independent(self, table: Table) -> Table:
        """The part of the main text whose calls are independent."""
        if self.in_all_calls:
            rows = table.selected[0]
            alike = (rows[:-1] == rows[1:]).all(1).mean() if len(rows) > 1 else 0.0
            return table.part(slice(0, 1), one_window_each=bool(alike < MOST))
        return table.part(slice(0, len(table.inputs) // PASSES)) if self.for_same_text else table


def repeats_of(main: Table) -> Repeats:
    """Correlate the selections of all pairs of calls, position by position; and those of the same windows in the first
    and the last pass."""
    sizes = np.maximum(1, main.eligible.sum(2, keepdims=True))
    scores = np.where(main.eligible, main.selected - main.selected.sum(2, keepdims=True) / sizes, 0.0)
    rows = scores.reshape(len(scores), -1).astype(np.float32)
    rows /= np.maximum(1e-6, np.sqrt((rows**2).sum(1, keepdims=True)))
    one, two = np.triu_indices(len(rows), 1)
    related, n_batches = (rows @ rows.T)[one, two], max(1, len(rows) // PASSES)
    same_text = (two - one == n_batches) & (one < n_batches)
    others, middle = related[~same_text], float(np.median(related[~same_text])) if len(rows) > 2 else 0.0
    back = ~same_text & (related > middle + max(0.2, 12 * float(np.median(np.abs(others - middle), axis=None))))
    lag = int(np.bincount((two - one)[back], minlength=1).argmax())
    first, last = np.zeros((2, int(main.source.max()) + 1))
    for values, part in ((first, slice(0, n_batches)), (last, slice(-n_batches, None))):
        values[main.source[part][main.source[part] >= 0]] = scores[part][main.source[part] >= 0]
    again = float(np.median(related[same_text])) > MOST
    again |= bool(first @ last > MOST * np.sqrt(max(1e-9, (first @ first) * (last @ last))))
    return Repeats(middle > MOST, again, len(np.unique(two[back])) / len(rows), lag)


def check_repeats(measured: Measured, repeats: Repeats) -> Iterator[Finding]:
    """Dynamic or static masks, masks that return, equal masks in a batch, workers, and seeds."""
    main, line = measured.main, ("new masks", f"{len(measured.main.inputs):,} calls")
    if repeats.in_all_calls:
        yield finding("masks of another call", "the same in all calls", *line, "static-masks")
    elif repeats.for_same_text:
        must_be_new = (measured.options.recipe or "").lower() == "roberta"
        yield finding("masks of another call", "the same for the same text", *line, "static-masks",
                      verdict=Verdict.BROKEN if must_be_new else Verdict.DIFFERS, recipes=("BERT's prepared data",),
                      cause="The same text has the same masks in every epoch: they are stored.")  # fmt: skip
    elif repeats.returning > FEWEST:
        found = f"{repeats.returning:.0%} of calls repeat one {repeats.lag} calls before"
        yield finding("masks of another call", found, *line, "masks-return")
    else:
        yield finding("masks of another call", "new masks", *line)
    yield check_batch(main, repeats)
    if not measured.workers:
        yield finding("workers and seeds", "not checked", "new masks per worker", "not asked for, or no fork")
        return
    first = [
        calls[0].labels if main.ignored is not None and not main.shift else calls[0].inputs
        for calls in measured.workers[0]
    ]
    same = np.mean([one.shape == other.shape and (one == other).all(1).mean() for one, other in pairwise(first)])
    is_new = same < MOST or repeats.in_all_calls or repeats.for_same_text
    yield finding("masks of two workers", f"{same:.0%} the same", "different", f"{len(first[0])} windows",
                  None if is_new else "same-masks-per-worker")  # fmt: skip
    pairs = [each for workers in zip(*measured.workers, strict=True) for each in zip(*workers, strict=True)]
    count = sum(np.array_equal(a.inputs, b.inputs) and np.array_equal(a.labels, b.labels) for a, b in pairs)
    bug = None if count == len(pairs) else "not-reproducible"
    yield finding(
        "masks of the same seed", "different" if bug else "same", "same", f"{count} of {len(pairs)} calls", bug
    )


def check_batch(main: Table, repeats: Repeats) -> Finding:
    """Whether windows of one call have the same mask, or masks that are moved copies of each other."""
    first = main.part(slice(0, 8))
    counts, sizes = first.selected.sum(2), first.eligible.sum(2)
    telling = (counts >= ENOUGH) & (sizes - counts >= ENOUGH)
    one, other = first.selected[:, :-1], first.selected[:, 1:]
    common = first.eligible[:, :-1] & first.eligible[:, 1:]
    same = ((one == other) | ~common).all(2)[((one | other) & common).sum(2) >= ENOUGH]
    evidence = f"{int(same.sum()):,} of {len(same):,} pairs"
    # Masks of few different forms repeat by chance, and then in other calls as often.
    copies, moved = copied(first, telling, 0), (0.0, 0.0) if repeats.in_all_calls else copied(first, telling, 1)
    if same.sum() > 2 and same.mean() > max(FEWEST, 4 * moved[0]):
        found = f"{same.mean():.0%} the same as in the next window"
        return finding("masks in a batch", found, "all new", evidence, "same-mask-in-batch")
    if copies[1] > max(FEWEST, 4 * moved[1]) and not repeats.in_all_calls:
        found = f"{copies[1]:.0%} are copies of another window's, moved or not"
        return finding("masks in a batch", found, "all new", evidence, "selected-by-rows")
    return finding("masks in a batch", "all new", "all new", evidence)


def copied(table: Table, telling: np.ndarray, step: int) -> tuple[float, float]:
    """The shares of windows whose selection is that of another window of the same call, or of the call `step` later, as
    it is, and moved by any number of columns: their largest circular correlation."""
    selected = (
        np.where(table.eligible, table.selected - table.selected.mean(2, keepdims=True), 0.0) * telling[..., None]
    )
    spectra = np.fft.rfft(selected / np.maximum(np.sqrt((selected**2).sum(2, keepdims=True)), 1e-6), axis=2)
    counts = np.zeros(2)
    for call in range(len(spectra)):
        other = spectra[(call + step) % len(spectra)]
        related = np.fft.irfft(spectra[call][:, None] * other[None].conj(), n=selected.shape[2], axis=2)
        own = (step == 0) * 2 * np.eye(len(related))
        counts += [((each - own).max(1) > RELATED).sum() for each in (related[..., 0], related.max(2))]
    return tuple(counts / max(1, telling.sum()))
