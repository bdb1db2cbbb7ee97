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
from auditing.statistics import LEVEL, Array, Share, of_means, sums_by

# Rates outside of these are broken unless they were stated.
HIGHEST = 0.5
LOWEST = 0.05
# Of the rate. Smaller differences, such as of budgets that are rounded, are not reported.
RATE_TOLERANCE = 0.02
# Smaller differences of a share are not reported, even if chance does not explain them.
TOLERANCE = 0.0025
# By which the share of [MASK] may differ in windows with few labels, whose counts are rounded.
MOST_ROUNDED = 0.15
# windows without labels; fewer are chance where one in 3,000 is expected
FEWEST_EMPTY = 5
SUREST = 1_000  # above, a z-score says no more than a count
# the mean run of selected tokens, in words, above which words are joined
MANY_WORDS = 5
FEWEST_DRAWN = 200  # random tokens


class Expected:
    """The rate and the shares that a target should have: as the options or its attributes state, or
    else those of the nearest recipe."""

    def __init__(self, measured: Measured, structure: Structure):
        options = measured.options
        claims = measured.facts
        stated = recipe_named(options.recipe) if options.recipe else None
        rate = structure.rate.value
        nearest = nearest_recipe(
            rate, structure.shares, structure.unit, structure.varies
        )
        self.recipe = stated or nearest
        rates = [
            options.rate,
            stated.rate if stated else None,
            claims.rate,
            nearest.rate,
        ]
        known = [rate for rate in rates if rate is not None]
        self.rate = known[0] if known else None  # None: each window has its own
        self.rate_is_stated = bool(options.rate or stated or claims.rate is not None)
        self.shares_are_stated = bool(stated or claims.shares)
        self.shares = self.recipe.shares
        self.source = self.recipe.name
        if claims.shares and not stated:
            self.shares = claims.shares
            self.source = "the target's own attributes"

        self.whole_words = claims.whole_words or (
            stated is not None and stated.unit == "word"
        )


def check_amounts(
    measured: Measured, structure: Structure, expected: Expected
) -> Iterator[Finding]:
    """Rates, counts, shares, and windows without labels."""
    main = measured.main
    yield check_rate(main, structure, expected)
    yield check_counts(measured, structure, expected)
    yield check_shares(main, structure, expected)
    yield from check_lengths(measured, structure)

    rates = np.array([structure.rate.value])
    if structure.varies:
        # An empty window would explain itself; + 1 makes up for their low rates.
        labels = main.per_window(main.selected)
        rates = (labels / (main.per_window(main.eligible) + 1))[labels > 0]
        rates = rates[:: 1 + len(rates) // 4000]

    run = max(1.0, structure.mean_run) if structure.is_clustered else 1.0
    yield from check_empty(measured, rates, run)


def check_lengths(measured: Measured, structure: Structure) -> Iterator[Finding]:
    """Whether short padded windows have the rate of full ones, within one label per window, and
    padded ones the share of [MASK]. Not for spans, which are cut there, or rates by window."""
    padded = measured.others.get("padded")
    if padded is None or structure.varies or structure.is_clustered:
        return
    lengths = padded.eligible.sum(2)
    is_short = (lengths >= 8) & (lengths < padded.originals.shape[2] // 2)
    selected = Share(
        (padded.selected.sum(2) * is_short).sum(1), (lengths * is_short).sum(1)
    )
    masked = Share(padded.masked.sum((1, 2)), padded.selected.sum((1, 2)))
    rate = structure.rate.value
    one_more = is_short.sum() / max(1, selected.totals.sum())

    for what, name, share, usual, reach in (
        ("selected", "selected-by-length", selected, rate, one_more + 0.1 * rate),
        ("[MASK]", "kind-by-length", masked, structure.shares[0], MOST_ROUNDED),
    ):
        bug = name if share.differs(usual, reach) else None
        wanted = f"{usual:.2%} ± {reach:.2%}"
        evidence = f"{share.totals.sum():,} positions"
        yield finding(
            f"{what} in padded windows", f"{share.value:.2%}", wanted, evidence, bug
        )


def z_or(count: str, share: Share, expected: float) -> str:
    """The evidence about a share: its z-score, or a count where it does not vary."""
    z = share.z(expected)
    return f"z = {z:+.1f}" if abs(z) < SUREST else count


def check_rate(main: Table, structure: Structure, expected: Expected) -> Finding:
    """The share of selected positions."""
    share = structure.rate
    value = share.value
    rate = expected.rate
    total = int(main.eligible.sum())
    count = f"{round(value * total):,} of {total:,}"
    if rate is None or structure.varies:
        return finding("selected share", f"{value:.2%}", "a rate per window", count)
    line = (
        "selected share",
        f"{value:.2%}",
        f"{100 * rate:g}%",
        z_or(count, share, rate),
    )
    width = main.originals.shape[2]
    lengths = (width, float(main.per_window(main.eligible).mean()))
    reach = RATE_TOLERANCE * rate
    if structure.is_clustered:
        reach = max(reach, structure.mean_run / width)
    is_rounded = structure.is_fixed and any(
        max(1, math.floor(rate * n))
        <= structure.counts.mean()
        <= max(1, math.ceil(rate * n))
        for n in lengths
    )
    if is_rounded or not share.differs(rate, reach):
        return finding(*line)
    if drawn_with_replacement(structure, rate, lengths):
        return finding(*line, "drawn-with-replacement")

    # Spans that are drawn independently overlap.
    is_overlap = structure.is_clustered and 0.85 * rate < value < rate
    is_extreme = not LOWEST < value < HIGHEST
    is_broken = not is_overlap and (expected.rate_is_stated or is_extreme)
    bug = "too-few-selected" if value < rate else "too-many-selected"
    return finding(*line, bug, verdict=Verdict.BROKEN if is_broken else Verdict.DIFFERS)


def drawn_with_replacement(
    structure: Structure, rate: float, lengths: Sequence[float]
) -> bool:
    """Whether counts are those of draws with replacement.

    The expected number of different positions of k draws among n is n (1 - (1 - 1/n)^k).
    """
    counts = structure.counts
    if structure.is_fixed or counts.var() >= 0.5 * structure.independent_variance:
        return False

    for n in lengths:
        share_drawn = counts.mean() / lengths[-1]
        for k in (math.floor(rate * n), math.ceil(rate * n)):
            expected = 1 - (1 - 1 / n) ** k
            if counts.max() <= k and abs(share_drawn / expected - 1) < 0.01:
                return True

    return False


def check_counts(
    measured: Measured, structure: Structure, expected: Expected
) -> Finding:
    """The number of labels per window: its spread, and whether a fixed number is the rate times the
    length, rounded down in windows of all widths."""
    counts = structure.counts
    variance = max(structure.independent_variance, 1e-9)
    spread = "fixed" if structure.is_fixed else "varies"
    text = f"{counts.mean():.1f} ± {counts.std():.1f} ({spread})"
    text += f", in runs of {structure.mean_run:.1f}"
    usual = f"± {math.sqrt(variance):.1f} if independent"
    evidence = f"variance ratio {counts.var() / variance:.2f}"
    least = least_if_rounded_down(measured, expected) if structure.is_fixed else None
    if least is None:
        return finding("labels per window", text, usual, evidence)
    fields: dict[str, Any] = {}
    text += ", rounded down"
    if least:
        text += ", at least 1"
        fields = {"verdict": Verdict.DIFFERS}

    return finding("labels per window", text, usual, evidence, "rounded-down", **fields)


def least_if_rounded_down(measured: Measured, expected: Expected) -> int | None:
    """The least number of labels per window, 1 or 0, if the numbers are those of a rate that is
    always rounded down; else None."""
    if not expected.rate:
        return None
    others = [table for name, table in measured.others.items() if name != "padded"]
    tables = [measured.main, *others]
    chosen = per_window(tables, "selected")
    products = [
        expected.rate * per_window(tables, name) for name in ("is_output", "eligible")
    ]
    for product in products:
        if (np.abs(chosen - np.maximum(product, 0.5)) <= 0.5 + 1e-6).all():
            return None  # rounded to the nearest

    for product in products:
        for least in (1, 0):
            if (chosen == np.maximum(least, np.floor(product + 1e-6))).all():
                return least

    return None


def per_window(tables: Sequence[Table], where: str) -> Array:
    """The numbers of positions in all windows of some tables."""
    return np.concatenate([table.per_window(getattr(table, where)) for table in tables])


def check_empty(
    measured: Measured, rates: Array, run: float = 1.0
) -> Iterator[Finding]:
    """Windows without labels, against independent selection of runs of the usual length at some
    rates."""
    every = {"main": measured.main, **measured.others}

    for name, texts in (
        ("empty windows", ("main", "long")),
        ("empty short windows", ("short", "padded")),
    ):
        tables = [table for text, table in every.items() if text in texts]
        if not tables:
            continue
        n_eligible = per_window(tables, "eligible")
        is_empty = per_window(tables, "selected") == 0
        expected = 0.0
        if rates.any():
            expected = float(((1 - rates) ** (n_eligible[:, None] / run)).mean())
        most = 1.5 * expected + 1e-3
        if expected > 1e-3:
            most += 0.02
        is_more = is_empty.mean() > most and is_empty.sum() >= FEWEST_EMPTY
        usual = f"about {expected:.2%}" if expected >= 5e-5 else "none"
        evidence = f"{is_empty.sum():,} of {len(is_empty):,}"
        bug = "empty-windows" if is_more else None
        yield finding(name, f"{is_empty.mean():.2%}", usual, evidence, bug)


def fits(structure: Structure, shares: Shares, same: Sequence[float]) -> bool:
    """Whether the observed shares differ from `shares` by no more than chance.

    A random token may be the original, with one of the probabilities `same`, and then it looks
    unchanged. If tokens are drawn from all ids, it may also be [MASK], with the same probability.
    """
    masked, random, kept = shares

    for p in same:
        for q in {0.0, p}:
            seen = (masked + random * q, random * (1 - p - q), kept + random * p)
            differs = [
                part.differs(share, TOLERANCE)
                for part, share in zip(structure.parts, seen, strict=True)
            ]
            if not any(differs):
                return True

    return False


def check_shares(main: Table, structure: Structure, expected: Expected) -> Finding:
    """The shares of [MASK], random and unchanged tokens, and the bug that leads to them if they
    differ."""
    n_seen = len(np.unique(main.inputs[main.randomized]))
    # A random token is never the original, or drawn from the ordinary ids, from all, or from those
    # that were seen.
    same = [
        0.0,
        1 / len(main.tokens.ordinary),
        1 / main.tokens.n_tokens,
        1 / (n_seen or math.inf),
    ]
    wanted = expected.shares
    bug = None
    fields: dict[str, Any] = {}
    if not fits(structure, wanted, same):
        bug = nearest_bug(structure, same)
        recipes = {each.name for each in RECIPES if fits(structure, each.shares, same)}
        is_broken = expected.shares_are_stated
        if bug == "kept-without-label":
            is_broken |= (
                abs(structure.rate.value / (0.9 * (expected.rate or 1)) - 1) < 0.03
            )
        fields["verdict"] = Verdict.BROKEN if is_broken else Verdict.DIFFERS
        fields["recipes"] = tuple(sorted(recipes))
        if not bug:
            bug = "other-shares"
            fields["cause"] = f"The shares are not those of {expected.source}."
        elif not expected.shares_are_stated:
            wanted = recipe_named("BERT").shares

    shares = "{:.2%} [MASK], {:.2%} random, {:.2%} unchanged".format(*structure.shares)
    usual = "{:.1%}, {:.1%}, {:.1%}".format(*wanted)
    worst = int(np.abs(np.subtract(structure.shares, wanted)).argmax())
    evidence = z_or(
        f"{main.selected.sum():,} selected", structure.parts[worst], wanted[worst]
    )
    return finding("kinds at selected", shares, usual, evidence, bug, **fields)


def nearest_bug(structure: Structure, same: Sequence[float]) -> str | None:
    """The bug of the catalogue that makes these shares of 80/10/10."""
    known = []
    for bug in CATALOGUE.values():
        for shares in bug.shares:
            if fits(structure, shares, same):
                known.append((distance(structure.shares, shares), bug.name))
    return min(known)[1] if known else None


def check_words(
    main: Table, structure: Structure, expected: Expected
) -> Iterator[Finding]:
    """Whether words are selected as a whole, if the words are known.

    The target or the recipe may say that they are: `expected.whole_words`.
    """
    sizes, chosen = structure.words
    if main.words is None or not chosen.any():
        return
    whole = structure.whole_words
    rate = structure.rate.value
    is_touched = chosen > 0
    n_whole = (chosen == sizes).sum()
    evidence = f"{n_whole:,} of {is_touched.sum():,} words"
    continues = (
        (shifted(main.words, 1, -2) == main.words) & (main.words >= 0) & main.eligible
    )
    later = (main.selected & continues).sum() / max(1, continues.sum())
    # A budget may end inside of one word per window.
    parts = (is_touched.sum() - n_whole) / len(structure.counts)
    bug = None
    if (continues.any() and later < 0.05 * rate) or (0.5 < whole < 0.95 and parts > 1):
        bug = "word-part-left"
    elif whole > 0.5 and structure.mean_run > MANY_WORDS * sizes.mean():
        bug = "words-joined"
        evidence = (
            f"runs of {structure.mean_run:.0f} tokens, words of {sizes.mean():.1f}"
        )
    elif expected.whole_words and whole < 0.5:
        bug = "word-part-left" if structure.is_clustered else "pieces-alone"

    independent = float((rate**sizes).sum() / (1 - (1 - rate) ** sizes).sum())
    usual = "all" if expected.whole_words else f"{independent:.1%} if independent"
    yield finding("whole words", f"{whole:.1%} whole", usual, evidence, bug)


def check_random(main: Table) -> Iterator[Finding]:
    """Whether all ordinary ids are drawn as random tokens, and equally often."""
    ordinary = main.tokens.ordinary
    where = main.randomized & np.isin(main.inputs, ordinary)
    ids = main.inputs[where]
    if len(ids) < FEWEST_DRAWN:
        return
    ranks = np.searchsorted(ordinary, ids)
    counts = np.bincount(ranks, minlength=len(ordinary))
    bug = None
    evidence = f"{len(ids):,} drawn"
    fields: dict[str, Any] = {}
    missed = end_never_drawn(ranks, ordinary)
    if counts.max() > 0.9 * len(ids):
        bug = "random-constant"
        evidence = (
            f"{counts.max():,} of {len(ids):,} are id {ordinary[counts.argmax()]}"
        )
    elif len(missed):
        bug = "replacement-range"
        side = "lowest" if missed[0] == ordinary[0] else "highest"
        evidence = f"the {len(missed):,} {side} never drawn"
        if (
            main.tokens.edges is None
            and not np.isin(main.originals[main.selected], missed).any()
        ):
            fields = {"verdict": Verdict.DIFFERS, "cause": HINT}
    elif len(ids) / len(ordinary) > 25 and not counts.all():
        bug = "replacement-range"
        evidence = f"{(counts == 0).sum():,} ids never drawn"
        if len(np.unique(ids % 2)) == 1:  # no text has only even, or only odd ids
            evidence += ", every other one"
        else:
            fields = {"verdict": Verdict.DIFFERS}
    elif shares := uneven_shares(
        ranks, np.nonzero(where)[0], len(ordinary), len(main.inputs)
    ):
        bug = "not-uniform"
        fields = {"recipes": ("frequency",), "chart": shares}

    usual = f"all {len(ordinary):,} ordinary ids"
    yield finding(
        "random tokens",
        f"ids {ids.min()} to {ids.max()}",
        usual,
        evidence,
        bug,
        **fields,
    )


def end_never_drawn(ranks: Array, ordinary: Array) -> Array:
    """The lowest or the highest ids, whichever are more, if none of them is drawn and uniform draws
    would rarely miss so many; else none."""
    n = len(ordinary)
    n_low = int(ranks.min())
    n_high = n - 1 - int(ranks.max())
    most = max(n_low, n_high)
    if not most or 2 * (1 - most / n) ** len(ranks) >= LEVEL:
        return ordinary[:0]
    return ordinary[:n_low] if n_low >= n_high else ordinary[n - n_high :]


def uneven_shares(
    ranks: Array, calls: Array, n: int, n_calls: int
) -> tuple[float, ...]:
    """How often classes of ids are drawn, relative to uniform draws; empty if all are alike."""
    n_bins = min(n, 64, len(ranks) // FEWEST_DRAWN)
    share = np.bincount(np.arange(n) * n_bins // n, minlength=n_bins) / n
    observed = sums_by(calls, ranks * n_bins // n, n_calls, n_bins)
    totals = observed.sum(1, keepdims=True) * share
    uneven = of_means(observed - totals, totals, 1.0)
    return tuple(uneven.shares.tolist()) if uneven.exceeds(0.1) else ()
