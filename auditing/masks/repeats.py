"""Checks that masks are new in every call and worker, and the same for the same seed."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from auditing.findings import Finding, Verdict, finding
from auditing.masks.measure import Measured
from auditing.masks.table import Table

MOST, FEWEST = 0.5, 0.02  # shares of equal masks: above not due to chance, below not reported


class Repeats:
    """How the selections of calls are related."""

    def __init__(self, main: Table, n_passes: int):
        """Correlate the selections of all pairs of calls, position by position; and those of the
        same windows in the first and the last pass."""
        sizes = np.maximum(1, main.eligible.sum(2, keepdims=True))
        scores = np.where(
            main.eligible, main.selected - main.selected.sum(2, keepdims=True) / sizes, 0.0
        )
        rows = normalized(scores.reshape(len(scores), -1).astype(np.float32))
        one, two = np.triu_indices(len(rows), 1)
        self.n_batches = n_batches = max(1, len(rows) // n_passes)  # of a pass
        related, same_text = (rows @ rows.T)[one, two], (two - one == n_batches) & (one < n_batches)
        others, middle = (
            related[~same_text],
            float(np.median(related[~same_text])) if len(rows) > 2 else 0.0,
        )
        self.in_all_calls = middle > MOST  # whatever the text is
        passes = np.zeros((2, int(main.source.max()) + 1))
        for values, part in zip(
            passes, (slice(0, n_batches), slice(-n_batches, None)), strict=True
        ):
            values[main.source[part][main.source[part] >= 0]] = scores[part][main.source[part] >= 0]
        self.for_same_text = (
            max(float(np.median(related[same_text])), float(normalized(passes).prod(0).sum()))
            > MOST
        )
        back = ~same_text & (
            related > middle + max(0.2, 12 * float(np.median(np.abs(others - middle))))
        )
        back &= (
            related**2 * sizes.sum((1, 2))[np.stack([one, two])].min(0) > 36
        )  # small calls are alike by chance
        # The share of calls whose selection is that of an earlier call with another text, and their
        # usual distance.
        self.returning = len(np.unique(two[back])) / len(rows)
        self.lag = int(np.bincount((two - one)[back], minlength=1).argmax())

    def independent(self, table: Table) -> Table:
        """The part of the main text whose calls are independent."""
        if self.in_all_calls:
            alike = (table.selected[0, :-1] == table.selected[0, 1:]).all(1)
            return table.part(
                slice(0, 1), one_window_each=not alike.size or bool(alike.mean() < MOST)
            )
        return table.part(slice(0, self.n_batches)) if self.for_same_text else table


def normalized(vectors: np.ndarray) -> np.ndarray:
    """Vectors along the last axis, divided by their lengths."""
    return vectors / np.maximum(1e-6, np.sqrt((vectors**2).sum(-1, keepdims=True)))


def check_repeats(measured: Measured, repeats: Repeats) -> Iterator[Finding]:
    """Dynamic or static masks, masks that return, equal masks in a batch, workers, and seeds."""
    main, found, bug, fields = measured.main, "new masks", None, {}
    if repeats.in_all_calls:
        found, bug = "the same in all calls", "static-masks"
    elif repeats.returning > FEWEST:
        found = f"{repeats.returning:.0%} of calls repeat one, mostly the one {repeats.lag} before"
        bug = "same-masks-per-worker" if repeats.lag < measured.facts.n_workers else "masks-return"
    elif repeats.for_same_text:
        found, bug = "the same for the same text", "static-masks"
        fields = {
            "cause": "The same text has the same masks in every epoch.",
            "recipes": ("BERT's prepared data",),
        }
        fields |= (
            {}
            if (measured.options.recipe or "").lower() == "roberta"
            else {"verdict": Verdict.DIFFERS}
        )
    yield finding(
        "masks of another call", found, "new masks", f"{len(main.inputs):,} calls", bug, **fields
    )
    if not measured.workers:
        return
    states = [
        calls[0].generators for calls in measured.workers[0]
    ]  # which were seeded differently before
    reset = [
        name for name, state in states[0].items() if all(each[name] == state for each in states[1:])
    ]
    found = f"{', '.join(reset)}: the same state in all workers" if reset else "not seeded"
    bug = "global-seed-reset" if reset else None
    yield finding("global generators", found, "not seeded", f"{len(states)} workers", bug)
    part = "labels" if main.ignored is not None and not main.shift else "inputs"
    first = [getattr(calls[0], part) for calls in measured.workers[0]]
    same = np.mean(
        [
            one.shape == other.shape and (one == other).all(1).mean()
            for one, other in pairwise(first)
        ]
    )
    bug = (
        "same-masks-per-worker"
        if same > MOST and not (repeats.in_all_calls or repeats.for_same_text)
        else None
    )
    fields = (
        {"verdict": Verdict.DIFFERS}
        if bug and measured.facts.kind not in ("collator", "dict")
        else {}
    )
    evidence = f"{len(first[0])} windows"
    yield finding(
        "masks of two workers", f"{same:.0%} the same", "different", evidence, bug, **fields
    )
    pairs = [
        each
        for workers in zip(*measured.workers, strict=True)
        for each in zip(*workers, strict=True)
    ]
    same = [
        np.array_equal(a.inputs, b.inputs) and np.array_equal(a.labels, b.labels) for a, b in pairs
    ]
    bug = None if all(same) else "not-reproducible"
    evidence = f"{sum(same)} of {len(pairs)} calls"
    yield finding("masks of the same seed", "different" if bug else "same", "same", evidence, bug)
