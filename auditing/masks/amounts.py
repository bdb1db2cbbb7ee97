"""Checks how much is selected, and in which shares: rates, counts per window, [MASK], random and unchanged tokens."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from auditing.finding import Finding, Verdict
from auditing.masks.catalogue import finding
from auditing.masks.measure import Measured
from auditing.masks.recipes import RECIPES, SIGNATURES, Recipe, Shares
from auditing.masks.structure import Structure, word_counts
from auditing.masks.table import Table, shifted

HIGHEST, LOWEST = 0.5, 0.05  # rates outside of these are broken unless they were stated
RATE_TOLERANCE = 0.02  # of the rate: smaller differences, such as of budgets that are rounded, are not reported
TOLERANCE = 0.0025  # differences of a share below this are not reported, even if they are no chance
MANY_WORDS = 5  # the mean run of selected tokens, in words, above which words are joined


@dataclass(frozen=True)
class Expected:
    """What a target should do, and where that is stated: by the user, its attributes, or only the nearest recipe."""

    rate: float | None  # None: each window has its own
    shares: Shares
    rate_is_stated: bool
    shares_are_stated: bool
    source: str
    whole_words: bool
    recipe: Recipe


def check_amounts(measured: Measured, structure: Structure, expected: Expected) -> Iterator[Finding]:
    """All checks of amounts."""
    yield check_rate(measured.main, structure, expected)
    yield check_counts(measured, structure, expected)
    yield from check_shares(measured.main, structure, expected)
    yield from check_words(measured.main, structure, expected)
    run = max(1.0, structure.mean_run) if structure.is_clustered else 1.0
    yield from check_empty(measured, structure.rate.value, run, structure.varies)


def check_rate(main: Table, structure: Structure, expected: Expected) -> Finding:
    """The share of selected positions."""
    found, rate, total = structure.rate, expected.rate, int(main.eligible.sum())
    count = f"{round(found.value * total):,} of {total:,}"
    if rate is None or structure.varies:
        return finding("selected share", f"{found.value:.2%}", "a rate per window", count)
    line = "selected share", f"{found.value:.2%}", f"{rate:.0%}", f"z = {found.z(rate):+.1f}" if found.stderr else count
    lengths = main.originals.shape[2], float(main.per_window(main.eligible).mean())
    mean = float(structure.counts.mean())
    fits = [max(1, math.floor(rate * n)) <= mean <= max(1, math.ceil(rate * n)) for n in lengths]
    reach = max(RATE_TOLERANCE * rate, structure.mean_run / lengths[0] if structure.is_clustered else 0)
    if (structure.is_fixed and any(fits)) or not found.differs(rate) or abs(found.value - rate) <= reach:
        return finding(*line)
    if drawn_with_replacement(structure, rate, lengths):
        return finding(*line, "drawn-with-replacement")
    bug, cause = "too-few-selected" if found.value < rate else "too-many-selected", ""
    broken = expected.rate_is_stated or not LOWEST < found.value < HIGHEST
    usual = [rate] if expected.rate_is_stated else [each.rate for each in RECIPES if each.rate and each.rate <= 0.3]
    if any(abs(found.value - (1 - each)) < 0.02 for each in usual):
        cause = "The comparison is the wrong way round: as many are selected as should be left."
    elif structure.is_clustered and 0.85 < found.value / rate < 1:
        broken, cause = False, "Spans that are drawn independently overlap, so fewer tokens are selected."
    cause = cause or (f"{expected.source} states another rate." if broken else "The nearest recipe has another rate.")
    return finding(*line, bug, verdict=Verdict.BROKEN if broken else Verdict.DIFFERS, cause=cause)


def drawn_with_replacement(structure: Structure, rate: float, lengths: Sequence[float]) -> bool:
    """Whether counts are those of draws with replacement: k draws among n positions hit n (1 - (1 - 1/n)^k)."""
    counts, n_eligible = structure.counts, lengths[-1]
    if structure.is_fixed or counts.var() > 0.5 * structure.independent_variance:
        return False
    for n in lengths:
        for k in (math.floor(rate * n), math.ceil(rate * n)):
            mean = n * (1 - (1 - 1 / n) ** k) * n_eligible / n
            if counts.max() <= k and abs(counts.mean() / mean - 1) < 0.01:
                return True
    return False


def check_counts(measured: Measured, structure: Structure, expected: Expected) -> Finding:
    """The number of labels per window: its spread, and how a fixed number is rounded."""
    counts, spread = structure.counts, math.sqrt(structure.independent_variance)
    found = f"{counts.mean():.1f} ± {counts.std():.1f} ({'fixed' if structure.is_fixed else 'varies'})"
    line = "labels per window", f"± {spread:.1f} if independent", f"variance ratio {counts.var() / max(spread**2, 1e-9):.2f}"
    if not structure.is_fixed or expected.rate is None or not measured.widths:
        return finding(line[0], found, *line[1:])
    rule = rounding(measured.widths, expected.rate)
    bug = {"down": "rounded-down", "down, at least 1": "rounded-down"}.get(rule)
    fields = {"verdict": Verdict.DIFFERS} if rule == "down, at least 1" else {}
    return finding(line[0], f"{found}, rounded {rule}", *line[1:], bug, **fields)


def rounding(sets: Sequence[Table], rate: float) -> str:
    """The rule that rounds the rate times the width, or times the ordinary tokens, to the counts of windows."""
    counts = np.concatenate([table.per_window(table.selected) for table in sets])
    n_eligible = np.concatenate([table.per_window(table.eligible) for table in sets])
    widths = np.concatenate([table.per_window(np.ones_like(table.real)) for table in sets])
    for products in (rate * widths, rate * n_eligible):
        down = np.floor(products + 1e-6)
        rules = {
            "to nearest": np.abs(counts - np.maximum(products, 0.5)) <= 0.5 + 1e-6,
            "up": counts == np.ceil(products - 1e-6),
            "down": counts == down,
            "down, at least 1": counts == np.maximum(1, down),
        }
        for rule, holds in rules.items():
            if (holds | (counts == n_eligible)).all():
                return rule
    return "in another way"


def check_empty(measured: Measured, rate: float, run: float = 1.0, varies: bool = False) -> Iterator[Finding]:
    """Windows without labels, against independent selection of runs of the usual length."""
    short = [*measured.widths, *([measured.ragged] if measured.ragged is not None else [])]
    sets = {f"empty windows of {table.originals.shape[2]}": [table] for table in (measured.main, measured.long) if table}
    for name, tables in {**sets, **({"empty short windows": short} if short else {})}.items():
        n_eligible = np.concatenate([table.per_window(table.eligible) for table in tables])
        counts = np.concatenate([table.per_window(table.selected) for table in tables])
        expected = float(((1 - rate) ** (n_eligible / run)).mean()) if 0 < rate < 1 else 0.0
        if varies:
            expected = float((1 / (1 + n_eligible)).mean())
        count, total = int((counts == 0).sum()), max(1, len(counts))
        line = name, f"{count / total:.2%}", f"about {expected:.2%}" if expected >= 5e-5 else "none", f"{count:,} of {total:,}"
        many = count / total > 1.5 * expected + 0.02 * (expected > 1e-3) + 1e-3
        yield finding(*line, "empty-windows" if many else None)


def fits(structure: Structure, shares: Shares, same: Sequence[float]) -> bool:
    """Whether the shares differ from `shares` by no more than chance, if a random token is the original with one of the
    probabilities `same`, and then looks unchanged."""
    masked, random, kept = shares
    return any(
        all(
            abs(part.value - value) <= TOLERANCE or not part.differs(value)
            for part, value in zip(structure.parts, (masked, random * (1 - p), kept + random * p), strict=True)
        )
        for p in same
    )


def check_shares(main: Table, structure: Structure, expected: Expected) -> Iterator[Finding]:
    """The shares of [MASK], random and unchanged tokens, and the bug that leads to them if they differ."""
    ordinary, n_tokens = len(main.tokens.ordinary), main.tokens.n_tokens
    only = 1 / max(1, len(np.unique(main.inputs[main.randomized])))
    same = (0.0, 1 / ordinary, 1 / n_tokens, only)  # never the original; drawn from the ordinary, all, or the seen ids
    bug, cause, verdict = None, "", Verdict.BROKEN if expected.shares_are_stated else Verdict.DIFFERS
    fitting: tuple[str, ...] = ()
    if not fits(structure, expected.shares, same):
        apart = {
            name: sum(abs(one - other) for one, other in zip(structure.shares, shares, strict=True))
            for shares, name in reversed(SIGNATURES) if fits(structure, shares, same)
        }  # fmt: skip
        bug = min(apart, key=lambda name: apart[name]) if apart else "other-shares"
        cause = "" if apart else f"The shares are not those of {expected.source}."
        few = expected.rate and abs(structure.rate.value / (0.9 * expected.rate) - 1) < 0.03
        verdict = Verdict.BROKEN if bug == "kept-without-label" and few else verdict
        fitting = tuple(sorted({recipe.name for recipe in RECIPES if fits(structure, recipe.shares, same)}))
    total = int(main.selected.sum())
    for name, part, value in zip(("[MASK]", "random", "unchanged"), structure.parts, expected.shares, strict=True):
        evidence = f"z = {part.z(value):+.1f}" if part.stderr else f"{round(part.value * total):,} of {total:,}"
        line = f"{name} at selected", f"{part.value:.2%}", f"{value:.1%}", evidence
        if bug is None or abs(part.value - value) <= TOLERANCE:
            yield finding(*line)
        else:
            yield finding(*line, bug, verdict=verdict, recipes=fitting, **({"cause": cause} if cause else {}))


def check_words(main: Table, structure: Structure, expected: Expected) -> Iterator[Finding]:
    """Whether words are selected as a whole. `expected.whole_words`: the target or the recipe says that they are."""
    counted, whole = word_counts(main), structure.whole_words
    if counted is None or whole is None or main.words is None:
        return
    sizes, chosen = counted
    rate, touched = structure.rate.value, chosen > 0
    independent = float((rate**sizes).sum() / (1 - (1 - rate) ** sizes).sum())
    evidence = f"{int((touched & (chosen == sizes)).sum()):,} of {int(touched.sum()):,} words"
    line = "whole words", f"{whole:.1%} whole", "all" if expected.whole_words else f"{independent:.1%} if independent"
    continues = (shifted(main.words, 1, -2) == main.words) & (main.words >= 0) & main.eligible
    later = (main.selected & continues).sum() / max(1, continues.sum())
    parts = (touched & (chosen < sizes)).sum() / len(structure.counts)  # a budget may end inside one word per window
    bug = None
    if continues.any() and later < 0.05 * rate:
        bug = "word-part-left"
    elif whole > 0.5 and structure.mean_run > MANY_WORDS * sizes.mean():
        bug, evidence = "words-joined", f"runs of {structure.mean_run:.0f} tokens, words of {sizes.mean():.1f}"
    elif expected.whole_words and whole < 0.5:
        bug = "pieces-alone"
    elif 0.5 < whole < 0.95 and parts > 1:
        bug = "word-part-left"
    yield finding(*line, evidence, bug)
