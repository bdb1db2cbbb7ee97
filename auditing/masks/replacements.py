"""Checks what [MASK] is, and which tokens replace the originals at random."""

from collections.abc import Iterator

import numpy as np

from auditing.finding import Finding, Verdict
from auditing.masks.catalogue import finding
from auditing.masks.measure import Measured
from auditing.masks.table import Table
from auditing.masks.tokens import SPECIAL_HINT
from auditing.statistics import LEVEL, chi_square_p

FEWEST = 200  # fewer random tokens are not tested
PER_BIN = 50.0  # expected count of a bin of the chi-square test
HARMLESS = 0.01  # the share of special tokens among random ones of BERT's own code is far below


def check_mask(measured: Measured) -> Iterator[Finding]:
    """Whether the id that replaces most tokens is the mask token, and no ordinary token's."""
    used, tokens, stated = measured.reading.mask, measured.main.tokens, measured.facts.tokens.mask
    count, total = int(measured.main.masked.sum()), int(measured.main.selected.sum())
    if used is None or not count or not 0 <= used < tokens.n_tokens:
        return  # an id out of the vocabulary is reported as that
    bug = "unknown-as-mask" if used == tokens.unknown else "mask-is-ordinary" if used in tokens.ordinary else None
    expected = f"id {stated}" if stated not in (None, tokens.unknown) else "a special id"
    yield finding("mask token", f"id {used}", expected, f"{count:,} of {total:,}", bug)


def check_random(main: Table) -> Iterator[Finding]:
    """The distribution of random tokens: special tokens among them, constants, ranges, and its uniformity."""
    n_tokens, ordinary = main.tokens.n_tokens, main.tokens.ordinary
    ids = main.inputs[main.randomized]
    ids = ids[(ids >= 0) & (ids < n_tokens)]
    if len(ids) < FEWEST:
        return
    counts = np.bincount(ids, minlength=n_tokens)
    top = int(counts.argmax())
    if counts[top] > 0.9 * len(ids):
        evidence = f"{counts[top]:,} of {len(ids):,}"
        yield finding("random tokens", f"id {top}", "ordinary ids", evidence, "random-constant")
        return
    special = int(counts[[id for id in main.tokens.special if id != main.tokens.mask]].sum())
    line = "special among random", f"{special / len(ids):.2%} special", "none", f"{special:,} of {len(ids):,}"
    if special > HARMLESS * len(ids) or not special:
        yield finding(*line, "special-as-replacement" if special else None)
    else:
        recipes = ("BERT's own code, with 5 special of 30,522 tokens",)
        yield finding(*line, "special-as-replacement", verdict=Verdict.DIFFERS, recipes=recipes)
    yield check_range(main, counts[ordinary])


def check_range(main: Table, counts: np.ndarray) -> Finding:
    """Whether all ordinary ids are drawn, `counts` times each, and equally often."""
    ordinary, total, n = main.tokens.ordinary, int(counts.sum()), len(counts)
    drawn, never = np.flatnonzero(counts), np.flatnonzero(counts == 0)
    if not total:
        return finding("random tokens", "only special ids", f"all {n:,} ordinary ids", "", "replacement-range")
    low, high = int(drawn[0]), n - 1 - int(drawn[-1])
    chance = (1 - max(low, high) / n) ** total  # that uniform draws miss so many ids at one end
    line = "random tokens", f"ids {ordinary[drawn[0]]} to {ordinary[drawn[-1]]}", f"all {n:,} ordinary ids"
    if 2 * chance < LEVEL and max(low, high):
        at_the_end = ordinary[:low] if low >= high else ordinary[n - high :]
        evidence = f"the {len(at_the_end):,} {'lowest' if low >= high else 'highest'} never drawn"
        may_be_special = len(main.tokens.special) <= 1 and not np.isin(main.originals[main.selected], at_the_end).any()
        fields = {"verdict": Verdict.DIFFERS, "cause": f"Some ids are never drawn. {SPECIAL_HINT}"} if may_be_special else {}
        return finding(*line, evidence, "replacement-range", **fields)
    if total / n > 25 and len(never):
        evidence = f"{len(never):,} of {n:,} ids never drawn"
        return finding(*line, evidence, "replacement-range", verdict=Verdict.DIFFERS)
    p = uniformity(main)
    chart = tuple((counts[np.argsort(np.arange(n) * min(n, 64) // n, kind="stable")] / total).tolist()) if n <= 128 else ()
    if p is None or p >= LEVEL:
        return finding(*line, "too few to test" if p is None else f"p = {p:.2f}")
    return finding(*line, f"p = {p:.1e}", "not-uniform", recipes=("frequency",), chart=chart)


def uniformity(main: Table) -> float | None:
    """P-value of the chi-square test on the first random ordinary token of every window; None if there are too few."""
    width, ordinary = main.inputs.shape[2], main.tokens.ordinary
    where = (main.randomized & np.isin(main.inputs, ordinary)).reshape(-1, width)
    rows = np.flatnonzero(where.any(1))
    ids = main.inputs.reshape(-1, width)[rows, where[rows].argmax(1)]
    n_bins = min(len(ordinary), int(len(ids) / PER_BIN))
    if n_bins < 2:
        return None
    bin_of = np.arange(len(ordinary)) * n_bins // len(ordinary)
    expected = np.bincount(bin_of) / len(ordinary) * len(ids)
    return chi_square_p(np.bincount(bin_of[np.searchsorted(ordinary, ids)], minlength=n_bins), expected)
