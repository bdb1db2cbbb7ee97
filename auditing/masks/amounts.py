"""Checks how much is selected, and in which shares: rates, counts per window, kinds, words, and
random tokens."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from auditing.findings import CATALOGUE, Finding, Verdict, finding
from auditing.masks.measure import Measured
from auditing.masks.recipes import (
    RECIPES,
    Shares,
    Structure,
    distance,
    nearest_recipe,
    recipe_named,
)
from auditing.masks.rules import HINT
from auditing.masks.table import Table, shifted
from auditing.statistics import LEVEL, Share, of_means, sums_by

HIGHEST, LOWEST = 0.5, 0.05  # rates outside of these are broken unless they were stated
RATE_TOLERANCE = (
    0.02  # of the rate: smaller differences, such as of budgets that are rounded, are not reported
)
# differences of a share below this are not reported, even if chance does not explain them
TOLERANCE = 0.0025
# by which the share of [MASK] may differ in windows with few labels, whose counts are rounded
MOST_ROUNDED = 0.15
FEWEST_EMPTY = 5  # windows without labels; fewer are chance where one in 3,000 is expected
SUREST = 1_000  # above, a z-score says no more than a count
MANY_WORDS = 5  # the mean run of selected tokens, in words, above which words are joined


class Expected:
    """The rate and the shares that a target should have, by the options, by its attributes, or else
    by the nearest recipe."""

    def __init__(self, measured: Measured, structure: Structure):
        options, claims = measured.options, measured.facts
        stated = recipe_named(options.recipe) if options.recipe else None
        nearest = nearest_recipe(
            structure.rate.value, structure.shares, structure.unit, structure.varies
        )
        self.recipe = stated or nearest
        rates = (options.rate, stated.rate if stated else None, claims.rate, nearest.rate)
        self.rate = next(
            (rate for rate in rates if rate is not None), None
        )  # None: each window has its own
        self.rate_is_stated = bool(options.rate or stated or claims.rate is not None)
        self.shares = stated.shares if stated else claims.shares or self.recipe.shares
        self.shares_are_stated = bool(stated or claims.shares)
        self.source = (
            "the target's own attributes" if claims.shares and not stated else self.recipe.name
        )
        self.whole_words = claims.whole_words or (stated is not None and stated.unit == "word")


def check_amounts(
    measured: Measured, structure: Structure, expected: Expected
) -> Iterator[Finding]:
    """Rates, counts, shares, and windows without labels."""
    main = measured.main
    yield check_rate(main, structure, expected)
    yield check_counts(measured, structure, expected)
    yield check_shares(main, structure, expected)
    yield from check_lengths(measured, structure)
    labels, sizes = main.per_window(main.selected), main.per_window(main.eligible)
    own = (labels / (sizes + 1))[
        labels > 0
    ]  # an empty window would explain itself; + 1 makes up for their low rates
    run = max(1.0, structure.mean_run) if structure.is_clustered else 1.0
    rates = own[:: 1 + len(own) // 4000] if structure.varies else np.array([structure.rate.value])
    yield from check_empty(measured, rates, run)


def check_lengths(measured: Measured, structure: Structure) -> Iterator[Finding]:
    """Whether short padded windows have the rate of full ones, within one label per window, and
    padded ones the share of [MASK]. Not for spans, which are cut there, or rates by window."""
    padded = measured.others.get("padded")
    if padded is None or structure.varies or structure.is_clustered:
        return
    lengths = padded.eligible.sum(2)
    is_short = (lengths >= 8) & (lengths < padded.originals.shape[2] // 2)
    selected = Share((padded.selected.sum(2) * is_short).sum(1), (lengths * is_short).sum(1))
    masked, rate = (
        Share(padded.masked.sum((1, 2)), padded.selected.sum((1, 2))),
        structure.rate.value,
    )
    one_more = is_short.sum() / max(1, selected.totals.sum())
    for what, name, found, usual, reach in (
        ("selected", "selected-by-length", selected, rate, one_more + 0.1 * rate),
        ("[MASK]", "kind-by-length", masked, structure.shares[0], MOST_ROUNDED),
    ):
        bug = name if found.differs(usual, reach) else None
        line = f"{what} in padded windows", f"{found.value:.2%}", f"{usual:.2%} ± {reach:.2%}"
        yield finding(*line, f"{found.totals.sum():,} positions", bug)


def z_or(count: str, share: Share, expected: float) -> str:
    """The evidence about a share: its z-score, or a count where it does not vary."""
    return f"z = {share.z(expected):+.1f}" if abs(share.z(expected)) < SUREST else count


def check_rate(main: Table, structure: Structure, expected: Expected) -> Finding:
    """The share of selected positions."""
    found, rate, total = structure.rate, expected.rate, int(main.eligible.sum())
    count = f"{round(found.value * total):,} of {total:,}"
    if rate is None or structure.varies:
        return finding("selected share", f"{found.value:.2%}", "a rate per window", count)
    line = "selected share", f"{found.value:.2%}", f"{100 * rate:g}%", z_or(count, found, rate)
    lengths, mean = (
        (main.originals.shape[2], float(main.per_window(main.eligible).mean())),
        structure.counts.mean(),
    )
    is_rounded = any(
        max(1, math.floor(rate * n)) <= mean <= max(1, math.ceil(rate * n)) for n in lengths
    )
    reach = max(
        RATE_TOLERANCE * rate, structure.mean_run / lengths[0] if structure.is_clustered else 0
    )
    if (structure.is_fixed and is_rounded) or not found.differs(rate, reach):
        return finding(*line)
    if drawn_with_replacement(structure, rate, lengths):
        return finding(*line, "drawn-with-replacement")
    overlap = (
        structure.is_clustered and 0.85 * rate < found.value < rate
    )  # of spans that are drawn independently
    broken = not overlap and (expected.rate_is_stated or not LOWEST < found.value < HIGHEST)
    bug = "too-few-selected" if found.value < rate else "too-many-selected"
    return finding(*line, bug, verdict=Verdict.BROKEN if broken else Verdict.DIFFERS)


def drawn_with_replacement(structure: Structure, rate: float, lengths: Sequence[float]) -> bool:
    """Whether counts are those of draws with replacement: k draws among n positions hit n (1 - (1 -
    1/n)^k)."""
    counts = structure.counts
    draws = [
        (n, k)
        for n in lengths
        for k in (math.floor(rate * n), math.ceil(rate * n))
        if counts.max() <= k
    ]
    hit = [abs(counts.mean() / (lengths[-1] * (1 - (1 - 1 / n) ** k)) - 1) < 0.01 for n, k in draws]
    return (
        not structure.is_fixed and counts.var() < 0.5 * structure.independent_variance and any(hit)
    )


def check_counts(measured: Measured, structure: Structure, expected: Expected) -> Finding:
    """The number of labels per window: its spread, and whether a fixed number is the rate times the
    length rounded down in windows of all widths."""
    counts, variance = structure.counts, max(structure.independent_variance, 1e-9)
    found = (
        f"{counts.mean():.1f} ± {counts.std():.1f} ({'fixed' if structure.is_fixed else 'varies'})"
    )
    found += f", in runs of {structure.mean_run:.1f}"
    line = (
        f"± {math.sqrt(variance):.1f} if independent",
        f"variance ratio {counts.var() / variance:.2f}",
    )
    tables = [
        measured.main,
        *(table for name, table in measured.others.items() if name != "padded"),
    ]
    chosen, lengths = (
        per_window(tables, "selected"),
        [per_window(tables, name) for name in ("is_output", "eligible")],
    )
    products = [(expected.rate or 0) * sizes for sizes in lengths]
    is_near = [(np.abs(chosen - np.maximum(each, 0.5)) <= 0.5 + 1e-6).all() for each in products]
    for each in products if structure.is_fixed and expected.rate and not any(is_near) else ():
        for least, text in ((1, ", at least 1"), (0, "")):
            if (chosen == np.maximum(least, np.floor(each + 1e-6))).all():
                fields = {"verdict": Verdict.DIFFERS} if least else {}
                return finding(
                    "labels per window",
                    f"{found}, rounded down{text}",
                    *line,
                    "rounded-down",
                    **fields,
                )
    return finding("labels per window", found, *line)


def per_window(tables: Sequence[Table], where: str) -> np.ndarray:
    """The numbers of positions in all windows of some tables."""
    return np.concatenate([table.per_window(getattr(table, where)) for table in tables])


def check_empty(measured: Measured, rates: np.ndarray, run: float = 1.0) -> Iterator[Finding]:
    """Windows without labels, against independent selection of runs of the usual length at some
    rates."""
    for name, sort in (
        ("empty windows", ("main", "long")),
        ("empty short windows", ("short", "padded")),
    ):
        tables = [
            table for of, table in {"main": measured.main, **measured.others}.items() if of in sort
        ]
        if not tables:
            continue
        n_eligible, counts = per_window(tables, "eligible"), per_window(tables, "selected")
        expected = (
            float(((1 - rates) ** (n_eligible[:, None] / run)).mean()) if rates.any() else 0.0
        )
        n_empty, found = int((counts == 0).sum()), float((counts == 0).mean())
        text = f"about {expected:.2%}" if expected >= 5e-5 else "none"
        is_more = found > 1.5 * expected + 0.02 * (expected > 1e-3) + 1e-3
        bug = "empty-windows" if is_more and n_empty >= FEWEST_EMPTY else None
        yield finding(name, f"{found:.2%}", text, f"{n_empty:,} of {len(counts):,}", bug)


def fits(structure: Structure, shares: Shares, same: Sequence[float]) -> bool:
    """Whether the shares differ from `shares` by no more than chance, if a random token is the
    original with one of the probabilities `same`, and then looks unchanged. Of all tokens, it may
    also be [MASK]."""
    masked, random, kept = shares
    seen = [
        (masked + random * q, random * (1 - p - q), kept + random * p)
        for p in same
        for q in {0.0, p}
    ]
    pairs = [list(zip(structure.parts, each, strict=True)) for each in seen]
    return any(not any(part.differs(share, TOLERANCE) for part, share in each) for each in pairs)


def check_shares(main: Table, structure: Structure, expected: Expected) -> Finding:
    """The shares of [MASK], random and unchanged tokens, and the bug that leads to them if they
    differ."""
    only = 1 / (len(np.unique(main.inputs[main.randomized])) or math.inf)
    # A random token is never the original, or drawn from the ordinary ids, from all, or from those
    # that were seen.
    same = (0.0, 1 / len(main.tokens.ordinary), 1 / main.tokens.n_tokens, only)
    bug: str | None = None
    fields: dict[str, Any] = {}
    wanted = expected.shares
    if not fits(structure, expected.shares, same):
        of_bugs = [(shares, each.name) for each in CATALOGUE.values() for shares in each.shares]
        known = [
            (distance(structure.shares, wrong), name)
            for wrong, name in of_bugs
            if fits(structure, wrong, same)
        ]
        bug = min(known)[1] if known else "other-shares"
        kept = (
            bug == "kept-without-label"
            and abs(structure.rate.value / (0.9 * (expected.rate or 1)) - 1) < 0.03
        )
        fields["verdict"] = (
            Verdict.BROKEN if kept or expected.shares_are_stated else Verdict.DIFFERS
        )
        fields["recipes"] = tuple(
            sorted({each.name for each in RECIPES if fits(structure, each.shares, same)})
        )
        fields |= {} if known else {"cause": f"The shares are not those of {expected.source}."}
        wanted = recipe_named("BERT").shares if known and not expected.shares_are_stated else wanted
    found, text = "{:.2%} [MASK], {:.2%} random, {:.2%} unchanged", "{:.1%}, {:.1%}, {:.1%}"
    part, value = max(
        zip(structure.parts, wanted, strict=True), key=lambda each: abs(each[0].value - each[1])
    )
    line = "kinds at selected", found.format(*structure.shares), text.format(*wanted)
    return finding(*line, z_or(f"{main.selected.sum():,} selected", part, value), bug, **fields)


def check_words(main: Table, structure: Structure, expected: Expected) -> Iterator[Finding]:
    """Whether words are selected as a whole. `expected.whole_words`: the target or the recipe says
    that they are."""
    whole, rate = structure.whole_words, structure.rate.value
    sizes, chosen = structure.words
    if main.words is None or not chosen.any():
        return
    touched = chosen > 0
    independent = float((rate**sizes).sum() / (1 - (1 - rate) ** sizes).sum())
    evidence = f"{(touched & (chosen == sizes)).sum():,} of {touched.sum():,} words"
    continues = (shifted(main.words, 1, -2) == main.words) & (main.words >= 0) & main.eligible
    later = (main.selected & continues).sum() / max(1, continues.sum())
    parts = (touched & (chosen < sizes)).sum() / len(
        structure.counts
    )  # a budget may end inside one word per window
    bug = None
    if (continues.any() and later < 0.05 * rate) or (0.5 < whole < 0.95 and parts > 1):
        bug = "word-part-left"
    elif whole > 0.5 and structure.mean_run > MANY_WORDS * sizes.mean():
        bug, evidence = (
            "words-joined",
            f"runs of {structure.mean_run:.0f} tokens, words of {sizes.mean():.1f}",
        )
    elif expected.whole_words and whole < 0.5:
        bug = "word-part-left" if structure.is_clustered else "pieces-alone"
    text = "all" if expected.whole_words else f"{independent:.1%} if independent"
    yield finding("whole words", f"{whole:.1%} whole", text, evidence, bug)


def check_random(main: Table) -> Iterator[Finding]:
    """Whether all ordinary ids are drawn as random tokens, and equally often."""
    ordinary, where = (
        main.tokens.ordinary,
        main.randomized & np.isin(main.inputs, main.tokens.ordinary),
    )
    ids, ranks, calls = (
        main.inputs[where],
        np.searchsorted(ordinary, main.inputs[where]),
        np.nonzero(where)[0],
    )
    n, n_drawn = len(ordinary), len(ids)
    if n_drawn < 200:
        return
    counts, bug, fields = np.bincount(ranks, minlength=n), None, dict[str, Any]()
    low, high = int(ranks.min()), n - 1 - int(ranks.max())
    evidence = f"{n_drawn:,} drawn"
    if counts.max() > 0.9 * n_drawn:
        bug, evidence = (
            "random-constant",
            f"{counts.max():,} of {n_drawn:,} are id {ordinary[counts.argmax()]}",
        )
    elif (
        max(low, high) and 2 * (1 - max(low, high) / n) ** n_drawn < LEVEL
    ):  # uniform draws rarely miss so many
        missed, side = (
            (ordinary[:low], "lowest") if low >= high else (ordinary[n - high :], "highest")
        )
        bug, evidence = "replacement-range", f"the {len(missed):,} {side} never drawn"
        if main.tokens.edges is None and not np.isin(main.originals[main.selected], missed).any():
            fields = {"verdict": Verdict.DIFFERS, "cause": HINT}
    elif n_drawn / n > 25 and not counts.all():
        is_rule = len(np.unique(ids % 2)) == 1  # no text has only even, or only odd ids
        bug, fields = "replacement-range", {} if is_rule else {"verdict": Verdict.DIFFERS}
        evidence = f"{(counts == 0).sum():,} ids never drawn" + ", every other one" * is_rule
    else:
        n_bins = min(n, 64, n_drawn // 200)
        share = np.bincount(np.arange(n) * n_bins // n, minlength=n_bins) / n
        (observed,) = sums_by(calls, ranks * n_bins // n, len(main.inputs), n_bins, None)
        totals = observed.sum(1, keepdims=True) * share
        uneven = of_means(observed - totals, totals, 1.0)
        if uneven.exceeds(0.1):
            bug, fields = (
                "not-uniform",
                {"recipes": ("frequency",), "chart": tuple(uneven.shares.tolist())},
            )
    line = "random tokens", f"ids {ids.min()} to {ids.max()}", f"all {n:,} ordinary ids"
    yield finding(*line, evidence, bug, **fields)
