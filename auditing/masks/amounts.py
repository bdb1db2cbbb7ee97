"""Checks how much is selected, and in which shares: rates, counts per window, kinds, words, and random tokens."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from auditing.finding import Finding, Verdict
from auditing.masks.catalogue import CATALOGUE, finding
from auditing.masks.measure import Measured
from auditing.masks.recipes import RECIPES, Recipe, Shares, Structure
from auditing.masks.rules import HINT
from auditing.masks.table import Table, shifted
from auditing.statistics import LEVEL, of_means

HIGHEST, LOWEST = 0.5, 0.05  # rates outside of these are broken unless they were stated
RATE_TOLERANCE = 0.02  # of the rate: smaller differences, such as of budgets that are rounded, are not reported
TOLERANCE = 0.0025  # differences of a share below this are not reported, even if chance does not explain them
MANY_WORDS = 5  # the mean run of selected tokens, in words, above which words are joined


@dataclass(frozen=True)
class Expected:
    """The rate and the shares that a target should have, and who states them: the user, its attributes, or a recipe."""

    rate: float | None  # None: each window has its own
    shares: Shares
    rate_is_stated: bool
    shares_are_stated: bool
    source: str
    whole_words: bool
    recipe: Recipe


def check_amounts(measured: Measured, structure: Structure, expected: Expected) -> Iterator[Finding]:
    """Rates, counts, shares, and windows without labels."""
    yield check_rate(measured.main, structure, expected)
    yield check_counts(measured, structure, expected)
    yield from check_shares(measured.main, structure, expected)
    run = max(1.0, structure.mean_run) if structure.is_clustered else 1.0
    main = measured.main
    own = main.per_window(main.selected) / main.per_window(main.eligible)
    yield from check_empty(measured, own[:1000] if structure.varies else np.array([structure.rate.value]), run)


def check_rate(main: Table, structure: Structure, expected: Expected) -> Finding:
    """The share of selected positions."""
    found, rate, total = structure.rate, expected.rate, int(main.eligible.sum())
    count = f"{round(found.value * total):,} of {total:,}"
    if rate is None or structure.varies:
        return finding("selected share", f"{found.value:.2%}", "a rate per window", count)
    evidence = f"z = {found.z(rate):+.1f}" if math.isfinite(found.z(rate)) else count
    line = "selected share", f"{found.value:.2%}", f"{rate:.0%}", evidence
    lengths = main.originals.shape[2], float(main.per_window(main.eligible).mean())
    mean = float(structure.counts.mean())
    fits = [max(1, math.floor(rate * n)) <= mean <= max(1, math.ceil(rate * n)) for n in lengths]
    reach = max(RATE_TOLERANCE * rate, structure.mean_run / lengths[0] if structure.is_clustered else 0)
    if (structure.is_fixed and any(fits)) or not found.differs(rate) or abs(found.value - rate) <= reach:
        return finding(*line)
    if drawn_with_replacement(structure, rate, lengths):
        return finding(*line, "drawn-with-replacement")
    broken = expected.rate_is_stated or not LOWEST < found.value < HIGHEST
    usual = [rate] if expected.rate_is_stated else [each.rate for each in RECIPES if each.rate and each.rate <= 0.3]
    cause = f"{expected.source} states another rate." if broken else "The nearest recipe has another rate."
    if any(abs(found.value - (1 - each)) < 0.02 for each in usual):
        cause = "The comparison is the wrong way round: as many are selected as should be left."
    elif structure.is_clustered and 0.85 < found.value / rate < 1:
        broken, cause = False, "Spans that are drawn independently overlap, so fewer tokens are selected."
    bug = "too-few-selected" if found.value < rate else "too-many-selected"
    return finding(*line, bug, verdict=Verdict.BROKEN if broken else Verdict.DIFFERS, cause=cause)


def drawn_with_replacement(structure: Structure, rate: float, lengths: Sequence[float]) -> bool:
    """Whether counts are those of draws with replacement: k draws among n positions hit n (1 - (1 - 1/n)^k)."""
    counts = structure.counts
    draws = [(n, k) for n in lengths for k in (math.floor(rate * n), math.ceil(rate * n)) if counts.max() <= k]
    hit = [abs(counts.mean() / (lengths[-1] * (1 - (1 - 1 / n) ** k)) - 1) < 0.01 for n, k in draws]
    return not structure.is_fixed and counts.var() < 0.5 * structure.independent_variance and any(hit)


def check_counts(measured: Measured, structure: Structure, expected: Expected) -> Finding:
    """The number of labels per window: its spread, and whether a fixed number is the rate times the length rounded down
    in windows of all widths."""
    counts, variance = structure.counts, max(structure.independent_variance, 1e-9)
    found = f"{counts.mean():.1f} ± {counts.std():.1f} ({'fixed' if structure.is_fixed else 'varies'})"
    line = f"± {math.sqrt(variance):.1f} if independent", f"variance ratio {counts.var() / variance:.2f}"
    for length in ("is_output", "eligible") if structure.is_fixed and expected.rate else ():
        short = [[table.per_window(getattr(table, name)) for name in ("selected", length)] for table in measured.widths]
        chosen, sizes = np.concatenate(short or [[np.ones(1), np.ones(1)]], axis=1)
        products = (expected.rate or 0) * sizes
        down, near = np.floor(products + 1e-6), np.abs(chosen - np.maximum(products, 0.5)) <= 0.5 + 1e-6
        if (chosen == np.maximum(1, down)).all() and not near.all():
            return finding("labels per window", f"{found}, rounded down, at least 1", *line, "rounded-down",
                           verdict=Verdict.DIFFERS)  # fmt: skip
        if (chosen == down).all() and not near.all():
            return finding("labels per window", f"{found}, rounded down", *line, "rounded-down")
    return finding("labels per window", found, *line)


def check_empty(measured: Measured, rates: np.ndarray, run: float = 1.0) -> Iterator[Finding]:
    """Windows without labels, against independent selection of runs of the usual length at some rates."""
    padded = [table for name, table in measured.others.items() if name == "padded"]
    sets = {"empty windows": [measured.main, *(measured.others[name] for name in measured.others if name == "long")],
            "empty short windows": [*measured.widths, *padded]}  # fmt: skip
    for name, tables in sets.items():
        if not tables:
            continue
        n_eligible = np.concatenate([table.per_window(table.eligible) for table in tables])
        counts = np.concatenate([table.per_window(table.selected) for table in tables])
        expected = float(((1 - rates) ** (n_eligible[:, None] / run)).mean()) if rates.any() else 0.0
        found = float((counts == 0).mean())
        text = f"about {expected:.2%}" if expected >= 5e-5 else "none"
        bug = "empty-windows" if found > 1.5 * expected + 0.02 * (expected > 1e-3) + 1e-3 else None
        yield finding(name, f"{found:.2%}", text, f"{(counts == 0).sum():,} of {len(counts):,}", bug)


def fits(structure: Structure, shares: Shares, same: Sequence[float]) -> bool:
    """Whether the shares differ from `shares` by no more than chance, if a random token is the original with one of the
    probabilities `same`, and then looks unchanged."""
    masked, random, kept = shares
    seen = [(masked, random * (1 - p), kept + random * p) for p in same]
    return any(
        all(abs(part.value - share) <= TOLERANCE or not part.differs(share)
            for part, share in zip(structure.parts, each, strict=True)) for each in seen
    )  # fmt: skip


def check_shares(main: Table, structure: Structure, expected: Expected) -> Iterator[Finding]:
    """The shares of [MASK], random and unchanged tokens, and the bug that leads to them if they differ."""
    only = 1 / max(1, len(np.unique(main.inputs[main.randomized])))
    # A random token is never the original, or drawn from the ordinary ids, from all, or from those that were seen.
    same = (0.0, 1 / len(main.tokens.ordinary), 1 / main.tokens.n_tokens, only)
    bug: str | None = None
    fields: dict[str, Any] = {"verdict": Verdict.BROKEN if expected.shares_are_stated else Verdict.DIFFERS}
    if not fits(structure, expected.shares, same):
        apart = {
            bug.name: sum(abs(one - other) for one, other in zip(structure.shares, shares, strict=True))
            for bug in CATALOGUE.values() for shares in bug.shares if fits(structure, shares, same)
        }  # fmt: skip
        bug = min(apart, key=lambda name: apart[name], default="other-shares")
        if not apart:
            fields["cause"] = f"The shares are not those of {expected.source}."
        few = bool(expected.rate) and abs(structure.rate.value / (0.9 * (expected.rate or 1)) - 1) < 0.03
        if bug == "kept-without-label" and few:
            fields["verdict"] = Verdict.BROKEN
        fields["recipes"] = tuple(sorted({recipe.name for recipe in RECIPES if fits(structure, recipe.shares, same)}))
    for name, part, value in zip(("[MASK]", "random", "unchanged"), structure.parts, expected.shares, strict=True):
        evidence = f"z = {part.z(value):+.1f}" if math.isfinite(part.z(value)) else f"{main.selected.sum():,} selected"
        line = f"{name} at selected", f"{part.value:.2%}", f"{value:.1%}", evidence
        yield finding(*line) if bug is None or abs(part.value - value) <= TOLERANCE else finding(*line, bug, **fields)


def check_words(main: Table, structure: Structure, expected: Expected) -> Iterator[Finding]:
    """Whether words are selected as a whole. `expected.whole_words`: the target or the recipe says that they are."""
    whole, rate = structure.whole_words, structure.rate.value
    if structure.words is None or main.words is None or not structure.words[1].any():
        return
    sizes, chosen = structure.words
    touched = chosen > 0
    independent = float((rate**sizes).sum() / (1 - (1 - rate) ** sizes).sum())
    evidence = f"{(touched & (chosen == sizes)).sum():,} of {touched.sum():,} words"
    continues = (shifted(main.words, 1, -2) == main.words) & (main.words >= 0) & main.eligible
    later = (main.selected & continues).sum() / max(1, continues.sum())
    parts = (touched & (chosen < sizes)).sum() / len(structure.counts)  # a budget may end inside one word per window
    bug = None
    if (continues.any() and later < 0.05 * rate) or (0.5 < whole < 0.95 and parts > 1):
        bug = "word-part-left"
    elif whole > 0.5 and structure.mean_run > MANY_WORDS * sizes.mean():
        bug, evidence = "words-joined", f"runs of {structure.mean_run:.0f} tokens, words of {sizes.mean():.1f}"
    elif expected.whole_words and whole < 0.5:
        bug = "pieces-alone"
    text = "all" if expected.whole_words else f"{independent:.1%} if independent"
    yield finding("whole words", f"{whole:.1%} whole", text, evidence, bug)


def check_random(main: Table) -> Iterator[Finding]:
    """Whether all ordinary ids are drawn as random tokens, and equally often."""
    ordinary, where = main.tokens.ordinary, main.randomized & np.isin(main.inputs, main.tokens.ordinary)
    ids, calls = main.inputs[where], np.nonzero(where)[0]
    n, n_calls = len(ordinary), len(main.inputs)
    if len(ids) < 200:
        return
    counts = np.bincount(np.searchsorted(ordinary, ids), minlength=n)
    line = "random tokens", f"ids {ids.min()} to {ids.max()}", f"all {n:,} ordinary ids"
    if counts.max() > 0.9 * len(ids):
        yield finding(*line, f"{counts.max():,} of {len(ids):,} are id {ordinary[counts.argmax()]}", "random-constant")
        return
    drawn = np.flatnonzero(counts)
    low, high = int(drawn[0]), n - 1 - int(drawn[-1])
    fields: dict[str, Any] = {}
    bug, evidence = None, f"{len(ids):,} drawn"
    if max(low, high) and 2 * (1 - max(low, high) / n) ** len(ids) < LEVEL:  # uniform draws rarely miss so many
        missed = ordinary[:low] if low >= high else ordinary[n - high :]
        bug, evidence = "replacement-range", f"the {len(missed):,} {'lowest' if low >= high else 'highest'} never drawn"
        if len(main.tokens.special) <= 1 and not np.isin(main.originals[main.selected], missed).any():
            fields = {"verdict": Verdict.DIFFERS, "cause": HINT}
    elif len(ids) / n > 25 and len(drawn) < n:
        bug, evidence, fields = "replacement-range", f"{n - len(drawn):,} ids never drawn", {"verdict": Verdict.DIFFERS}
    else:
        n_bins = min(n, 64, len(ids) // 200)
        bins = np.searchsorted(ordinary, ids) * n_bins // n
        expected = np.bincount(np.arange(n) * n_bins // n, minlength=n_bins) / n
        observed = np.bincount(calls * n_bins + bins, minlength=n_calls * n_bins).reshape(n_calls, n_bins)
        totals = observed.sum(1, keepdims=True) * expected
        uneven = of_means((observed - totals), totals, 1.0)
        bug = "not-uniform" if uneven.exceeds(0.1) else None
        fields = {"recipes": ("frequency",), "chart": tuple(uneven.shares.tolist())} if bug else {}
    yield finding(*line, evidence, bug, **fields)
