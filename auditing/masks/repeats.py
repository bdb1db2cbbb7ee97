"""Checks that masks are new in every call and worker, and the same for the same seed."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from auditing.findings import Finding, Verdict, finding
from auditing.masks.measure import Measured
from auditing.masks.table import Table
from auditing.masks.texts import Masked
from auditing.statistics import Array

# Shares of equal masks: above the first not due to chance, below the second not reported.
MOST = 0.5
FEWEST = 0.02


class Repeats:
    """How the selections of calls are related."""

    def __init__(self, main: Table, n_passes: int):
        """Correlate the selections of all pairs of calls, position by position; and those of the
        same windows in the first and the last pass."""
        self.n_batches = max(1, len(main.inputs) // n_passes)  # of a pass
        sizes = np.maximum(1, main.eligible.sum(2, keepdims=True))
        residuals = main.selected - main.selected.sum(2, keepdims=True) / sizes
        scores = np.where(main.eligible, residuals, 0.0)
        rows = normalized(scores.reshape(len(scores), -1).astype(np.float32))
        one, two = np.triu_indices(len(rows), 1)
        related = (rows @ rows.T)[one, two]
        is_same_text = (two - one == self.n_batches) & (one < self.n_batches)
        others = related[~is_same_text]
        middle = float(np.median(others)) if len(rows) > 2 else 0.0
        self.in_all_calls = middle > MOST  # whatever the text is
        of_same_text = float(np.median(related[is_same_text]))
        self.for_same_text = max(of_same_text, self._of_passes(main, scores)) > MOST

        # Calls whose selection is that of an earlier call with another text.
        usual = float(np.median(np.abs(others - middle)))
        returns = ~is_same_text & (related > middle + max(0.2, 12 * usual))
        n_smaller = sizes.sum((1, 2))[np.stack([one, two])].min(0)
        returns &= related**2 * n_smaller > 36  # small calls are alike by chance
        self.returning = len(np.unique(two[returns])) / len(rows)  # their share
        # usual distance
        self.lag = int(np.bincount((two - one)[returns], minlength=1).argmax())

    def _of_passes(self, main: Table, scores: Array) -> float:
        """The correlation of the first and the last pass over the places of the text."""
        passes = np.zeros((2, int(main.source.max()) + 1))
        for values, calls in zip(
            passes,
            (slice(0, self.n_batches), slice(-self.n_batches, None)),
            strict=True,
        ):
            source = main.source[calls]
            is_text = source >= 0
            values[source[is_text]] = scores[calls][is_text]
        return float(normalized(passes).prod(0).sum())

    def independent(self, table: Table) -> Table:
        """The part of the main text whose calls are independent."""
        if self.in_all_calls:
            rows = table.selected[0]
            is_alike = (rows[:-1] == rows[1:]).all(1)
            rows_differ = not is_alike.size or bool(is_alike.mean() < MOST)
            return table.part(slice(0, 1), one_window_each=rows_differ)
        return table.part(slice(0, self.n_batches)) if self.for_same_text else table


def normalized(vectors: Array) -> Array:
    """Vectors along the last axis, divided by their lengths."""
    return vectors / np.maximum(1e-6, np.sqrt((vectors**2).sum(-1, keepdims=True)))


def check_repeats(measured: Measured, repeats: Repeats) -> Iterator[Finding]:
    """Dynamic or static masks, masks that return, equal masks in a batch, workers, and seeds."""
    yield check_other_calls(measured, repeats)
    if measured.workers:
        yield check_generators(measured)
        yield check_two_workers(measured, repeats)
        yield check_same_seed(measured)


def check_other_calls(measured: Measured, repeats: Repeats) -> Finding:
    """Whether masks are those of another call, or of the same text before."""
    text = "new masks"
    bug = None
    fields: dict[str, Any] = {}
    if repeats.in_all_calls:
        text = "the same in all calls"
        bug = "static-masks"
    elif repeats.returning > FEWEST:
        text = f"{repeats.returning:.0%} of calls repeat one, mostly the one {repeats.lag} before"
        is_of_workers = repeats.lag < measured.facts.n_workers
        bug = "same-masks-per-worker" if is_of_workers else "masks-return"
    elif repeats.for_same_text:
        text = "the same for the same text"
        bug = "static-masks"
        fields["cause"] = "The same text has the same masks in every epoch."
        fields["recipes"] = ("BERT's prepared data",)
        if (measured.options.recipe or "").lower() != "roberta":
            fields["verdict"] = Verdict.DIFFERS

    n_calls = f"{len(measured.main.inputs):,} calls"
    return finding("masks of another call", text, "new masks", n_calls, bug, **fields)


def check_generators(measured: Measured) -> Finding:
    """Whether global generators, which were seeded differently before, have the same state after
    the first call of each worker."""
    states = [calls[0].generators for calls in measured.workers[0]]
    reset = []
    for name, state in states[0].items():
        if all(other[name] == state for other in states):
            reset.append(name)
    text = (
        f"{', '.join(reset)}: the same state in all workers" if reset else "not seeded"
    )
    bug = "global-seed-reset" if reset else None
    return finding(
        "global generators", text, "not seeded", f"{len(states)} workers", bug
    )


def check_two_workers(measured: Measured, repeats: Repeats) -> Finding:
    """Whether two workers draw the same masks."""
    by_labels = measured.main.ignored is not None and not measured.main.shift
    part = "labels" if by_labels else "inputs"
    first = [getattr(calls[0], part) for calls in measured.workers[0]]
    same = np.mean([share_of_equal_rows(one, other) for one, other in pairwise(first)])
    is_static = repeats.in_all_calls or repeats.for_same_text
    bug = "same-masks-per-worker" if same > MOST and not is_static else None
    fields = {}
    if bug and measured.facts.kind not in ("collator", "dict"):
        fields = {"verdict": Verdict.DIFFERS}
    evidence = f"{len(first[0])} windows"
    text = f"{same:.0%} the same"
    return finding("masks of two workers", text, "different", evidence, bug, **fields)


def check_same_seed(measured: Measured) -> Finding:
    """Whether workers with the same seed draw the same masks."""
    one, two = (
        [call for calls in workers for call in calls] for workers in measured.workers
    )
    n_same = sum(is_equal(call, other) for call, other in zip(one, two, strict=True))
    bug = None if n_same == len(one) else "not-reproducible"
    evidence = f"{n_same} of {len(one)} calls"
    text = "different" if bug else "same"
    return finding("masks of the same seed", text, "same", evidence, bug)


def share_of_equal_rows(one: Array, other: Array) -> float:
    """The share of rows that are equal; 0 if the shapes differ."""
    return float((one == other).all(1).mean()) if one.shape == other.shape else 0.0


def is_equal(one: Masked, other: Masked) -> bool:
    """Whether two calls returned the same inputs and labels."""
    same_inputs = np.array_equal(one.inputs, other.inputs)
    return same_inputs and np.array_equal(one.labels, other.labels)
