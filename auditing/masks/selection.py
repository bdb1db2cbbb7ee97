"""Checks how many positions are selected: the rate, the counts per window, and windows without labels."""

import math
from collections.abc import Iterator

import numpy as np

from auditing.finding import Finding, Verdict
from auditing.masks.draws import Draws
from auditing.masks.measure import Measured
from auditing.masks.recipes import RECIPES
from auditing.masks.structure import Structure
from auditing.statistics import mean_of

HIGHEST, LOWEST = 0.5, 0.05  # rates outside of these are broken unless they were stated
USUAL = 0.3  # the highest rate of which a reversed comparison is told from another rate
OVERLAP = 0.15  # of the rate, at most, is lost to spans that overlap
TOLERANCE = 0.02  # of the rate: smaller differences, such as of budgets that are rounded, are not reported


def check_rate(measured: Measured, structure: Structure, rate: float | None, stated: bool) -> Iterator[Finding]:
    """The share of selected positions against `rate`; None: every window has its own."""
    found, main = structure.rate, measured.main
    total = int(main.eligible.sum())
    name, text, count = "selected share", f"{found.value:.2%}", f"{round(found.value * total):,} of {total:,}"
    if rate is None or structure.varies:
        yield Finding(name, text, "a rate per window", count)
        return
    evidence = f"z = {found.z(rate):+.1f}" if found.stderr else count
    fixed = structure.is_fixed and fits_budget(main, structure.mean_count, rate)
    reach = max(TOLERANCE * rate, (structure.mean_run / main.originals.shape[2]) if structure.is_clustered else 0)
    if fixed or not found.differs(rate) or abs(found.value - rate) <= reach:
        yield Finding(name, text, f"{rate:.0%}", evidence, z=found.z(rate))
        return
    if is_drawn_with_replacement(main, structure, rate):
        cause = "Positions are drawn with replacement, so some are drawn twice: draw a permutation instead."
        yield Finding(
            name, text, f"{rate:.0%}", evidence, Verdict.BROKEN, "drawn-with-replacement", cause, z=found.z(rate)
        )
        return
    is_broken = stated or not LOWEST < found.value < HIGHEST
    bug = "too-few-selected" if found.value < rate else "too-many-selected"
    cause = "The rate is not the stated one." if stated else "No recipe has this rate: the nearest one is shown."
    rates = [rate] if stated else [recipe.rate for recipe in RECIPES if recipe.rate and recipe.rate <= USUAL]
    if any(abs(found.value - (1 - usual)) < 0.02 for usual in rates):
        cause = "The comparison is the wrong way round: as many are selected as should be left."
    elif structure.is_clustered and 1 - OVERLAP < found.value / rate < 1:
        is_broken, cause = False, "Spans that are drawn independently overlap, so fewer tokens are selected."
    verdict = Verdict.BROKEN if is_broken else Verdict.DIFFERS
    yield Finding(name, text, f"{rate:.0%}", evidence, verdict, bug, cause, z=found.z(rate))


def lengths(draws: Draws) -> tuple[int, float]:
    """The width of the windows, and their ordinary tokens: a rate may refer to either."""
    return draws.originals.shape[2], float(draws.per_window(draws.eligible).mean())


def fits_budget(draws: Draws, count: float, rate: float) -> bool:
    """Whether a fixed count is the rate times a length, rounded in either direction."""
    return any(max(1, math.floor(rate * n)) <= count <= max(1, math.ceil(rate * n)) for n in lengths(draws))


def is_drawn_with_replacement(draws: Draws, structure: Structure, rate: float) -> bool:
    """Whether counts are those of draws with replacement: k draws among n positions hit n (1 - (1 - 1/n)^k)."""
    width, n_eligible = lengths(draws)
    counts = draws.per_window(draws.selected)
    mean = mean_of(draws.per_unit(draws.selected) / draws.originals.shape[1])
    if structure.is_fixed or structure.count_variance > 0.5 * structure.binomial_variance:
        return False
    for n in (width, n_eligible):
        for k in (math.floor(rate * n), math.ceil(rate * n)):
            expected = n * (1 - (1 - 1 / n) ** k) * n_eligible / n
            if counts.max() <= k and not mean.differs(expected):
                return True
    return False


def check_counts(measured: Measured, structure: Structure, rate: float | None) -> Iterator[Finding]:
    """The number of labels per window: its spread, and how a fixed number is rounded."""
    spread, independent = math.sqrt(structure.count_variance), math.sqrt(structure.binomial_variance)
    kind = "fixed" if structure.is_fixed else "varies"
    found = f"{structure.mean_count:.1f} ± {spread:.1f} ({kind})"
    evidence = f"variance ratio {structure.count_variance / max(structure.binomial_variance, 1e-9):.2f}"
    expected = f"± {independent:.1f} if independent"
    if not structure.is_fixed or rate is None:
        yield Finding("labels per window", found, expected, evidence)
        return
    rule = rounding(list(measured.widths.values()), rate)
    verdict, bug, cause = Verdict.OK, None, ""
    if rule in ("down", "down, at least 1"):
        bug, cause = "rounded-down", "int(rate * length) rounds down: short windows get too few labels, or none."
        verdict = Verdict.BROKEN if rule == "down" else Verdict.DIFFERS
    yield Finding("labels per window", f"{found}, rounded {rule}", expected, evidence, verdict, bug, cause)


def rounding(sets: list[Draws], rate: float) -> str:
    """The rule that rounds the rate times the width, or times the ordinary tokens, to the counts of windows."""
    counts = np.concatenate([draws.per_window(draws.selected) for draws in sets])
    n_eligible = np.concatenate([draws.per_window(draws.eligible) for draws in sets])
    widths = np.concatenate([np.full(draws.originals[..., 0].size, draws.originals.shape[2]) for draws in sets])
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


def check_empty(measured: Measured, structure: Structure) -> Iterator[Finding]:
    """Windows without labels."""
    rate = structure.rate.value if math.isfinite(structure.rate.value) else 0.0
    for name, draws in (("empty windows", measured.main), ("empty windows", measured.long)):
        yield empty_finding(f"{name} of {draws.originals.shape[2]}", [draws], rate, structure)
    short = [*measured.widths.values(), *([measured.ragged] if measured.ragged is not None else [])]
    yield empty_finding("empty short windows", short, rate, structure)


def empty_finding(name: str, sets: list[Draws], rate: float, structure: Structure) -> Finding:
    """Windows with ordinary tokens but without labels, against independent selection of runs of the usual length."""
    n_eligible = np.concatenate([draws.per_window(draws.eligible) for draws in sets])
    counts = np.concatenate([draws.per_window(draws.selected) for draws in sets])[n_eligible > 0]
    n_eligible = n_eligible[n_eligible > 0]
    run = max(1.0, structure.mean_run) if structure.is_clustered else 1.0
    expected = float(((1 - rate) ** (n_eligible / run)).mean()) if 0 < rate < 1 else 0.0
    if structure.varies:
        expected = float((1 / (1 + n_eligible)).mean())
    count, total = int((counts == 0).sum()), len(counts)
    found, evidence = f"{count / max(1, total):.2%}", f"{count:,} of {total:,}"
    text = f"about {expected:.2%}" if expected >= 5e-5 else "none"
    if count / max(1, total) <= 1.5 * expected + 0.02 * (expected > 1e-3) + 1e-3:
        return Finding(name, found, text, evidence)
    cause = "Windows without labels: the loss of a batch of them is 0/0 = NaN, and their text is never learned."
    return Finding(name, found, text, evidence, Verdict.BROKEN, "empty-windows", cause)
