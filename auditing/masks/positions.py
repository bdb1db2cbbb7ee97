"""Checks where positions are selected: by column, by id, and by their distance from each other."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from auditing.finding import Finding, Verdict
from auditing.masks.draws import Draws
from auditing.masks.measure import Measured
from auditing.masks.structure import Structure
from auditing.masks.tokens import SPECIAL_HINT
from auditing.statistics import FEWEST_UNITS, LEVEL, mean_of, two_sided_p

EDGE = 10  # columns at either end of a window, where its ends cut spans and words
LARGE = 0.5  # relative difference from the mean above which a dependence on the position is a bug
MANY = 40  # expected count from which zero cannot be chance


@dataclass(frozen=True)
class Columns:
    """The selected share of every column."""

    share: np.ndarray  # [width], nan without ordinary tokens
    z: np.ndarray  # [width], from the mean of all columns
    n_eligible: np.ndarray  # [width]
    n_selected: np.ndarray


def columns_of(draws: Draws) -> Columns:
    """Selected shares by column, with z-scores from independent units."""
    parts, totals = draws.selected.sum(1).astype(float), draws.eligible.sum(1).astype(float)  # [n_units, width]
    mean = parts.sum() / max(1.0, totals.sum())
    n_units = len(parts)
    n_selected, n_eligible = parts.sum(0), totals.sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = n_selected / n_eligible
        # Under the hypothesis of equal shares, so that a column without selected positions has an error too.
        residuals = ((parts - mean * totals) ** 2).sum(0) * n_units / max(1, n_units - 1)
        z = (n_selected - mean * n_eligible) / np.sqrt(residuals)
    return Columns(share, np.nan_to_num(z), n_eligible, n_selected)


def check_columns(measured: Measured, structure: Structure) -> Iterator[Finding]:
    """Whether every position of a window is selected equally often."""
    draws, rate = measured.main, structure.rate.value
    columns = columns_of(draws)
    used = columns.n_eligible * rate >= MANY
    never = np.flatnonzero(used & (columns.n_selected == 0))
    width = draws.originals.shape[2]
    z_max = float(np.abs(columns.z).max())
    name, expected = "selected by position", f"{rate:.2%} everywhere"
    shares = columns.share[used]
    found = f"{np.nanmin(shares):.2%} to {np.nanmax(shares):.2%}" if used.any() else "too few draws"
    evidence = f"max |z| of {used.sum()}: {z_max:.1f}"
    significant = two_sided_p(z_max, len(draws.originals) - 1) * width < LEVEL if len(draws.originals) > 1 else False
    is_tested = len(draws.originals) >= FEWEST_UNITS and used.any()
    off = used & (np.abs(columns.share / rate - 1) > LARGE) if rate else np.zeros(width, dtype=bool)
    inner = off & (np.arange(width) >= EDGE) & (np.arange(width) < width - EDGE)
    sides = {"main": draws, "long": measured.long, "padded": measured.ragged}
    halves = {text: half_difference(each) for text, each in sides.items() if each is not None}
    favored = {text: value for text, value in halves.items() if abs(value) > LARGE}
    if is_tested and favored.get("long", 0.0) < 0:
        cause = "Only the first selected positions are kept, as with a limit of predictions per window."
        yield Finding(name, quarters(measured.long), expected, evidence, Verdict.BROKEN, "left-truncated", cause)
    elif is_tested and favored:
        cause = "One side of the window is favored: indices taken for ranks, or a loop that ends early."
        text, value = next(iter(favored.items()))
        found = f"{text} windows, right half: {1 + value:.0%} of the mean"
        yield Finding(name, found, expected, evidence, Verdict.BROKEN, "position-dependent", cause)
    elif is_tested and len(never):
        bug = "first-position" if len(never) <= 2 and never[0] <= 1 else "never-selected"
        cause = "Positions that are never drawn: a range that begins at 1, or ends one too early."
        text = f"never at {listed(never)}"
        yield Finding(name, text, expected, evidence, Verdict.BROKEN, bug, cause)
    elif is_tested and significant and (inner.any() or (off.any() and not structure.is_clustered)):
        cause = "Some positions of a window are favored: draws depend on the position."
        yield Finding(name, found, expected, evidence, Verdict.BROKEN, "position-dependent", cause)
    elif is_tested and significant:
        cause = "The ends of a window cut spans and words: a known effect." if structure.is_clustered else ""
        cause = cause or "Draws depend on the position."
        yield Finding(
            name, found, expected, evidence, Verdict.DIFFERS, "position-dependent", cause, ("SpanBERT", "whole-word")
        )
    else:
        yield Finding(name, found, expected, evidence)


def half_difference(draws: Draws) -> float:
    """(right - left) / (right + left), for the selected shares of ordinary tokens in the halves of each window; 0 if it
    could be chance. Padding is in neither half, so windows of all lengths compare."""
    order = draws.eligible.cumsum(2)
    count = order[..., -1:]
    left, right = draws.eligible & (2 * order <= count), draws.eligible & (2 * order > count + 1)
    sizes = np.maximum(1, left.sum(2))
    in_left, in_right = (draws.selected & left).sum(2) / sizes, (draws.selected & right).sum(2) / sizes
    difference, total = mean_of((in_right - in_left).mean(1)), float((in_right + in_left).mean())
    return difference.value / total if total and difference.differs(0.0) else 0.0


def quarters(draws: Draws) -> str:
    """The selected shares of the quarters of long windows."""
    parts = np.array_split(np.arange(draws.originals.shape[2]), 4)
    shares = [draws.selected[..., part].sum() / max(1, draws.eligible[..., part].sum()) for part in parts]
    return "quarters of long windows: " + ", ".join(f"{share:.1%}" for share in shares)


def listed(numbers: np.ndarray) -> str:
    """The first of some numbers, in words."""
    text = ", ".join(str(number) for number in numbers[:4])
    return f"{text} and {len(numbers) - 4} more" if len(numbers) > 4 else text


def check_neighbors(measured: Measured, structure: Structure) -> Iterator[Finding]:
    """Whether neighbors are selected together: single tokens, spans, or a regular pattern."""
    rate, after = structure.rate.value, structure.after
    lag = int(after[1:20].argmax()) + 2
    name, expected = "selected after selected", f"{rate:.1%} if independent"
    found = f"{after[0]:.1%}, mean run {structure.mean_run:.2f}"
    evidence = f"z = {structure.excess.z(0.0):+.1f}" if structure.excess.stderr else "no spread"
    if rate < 0.5 and after[lag - 1] > 0.8 and after[0] < 0.5:
        cause = "Positions follow a grid, so the model can know where to look: draw them."
        found = f"every {lag}th position: {after[lag - 1]:.0%} at a distance of {lag}"
        yield Finding(name, found, expected, evidence, Verdict.BROKEN, "regular-pattern", cause)
    else:
        yield Finding(name, found, expected, evidence, z=structure.excess.z(0.0))


def check_ids(measured: Measured, structure: Structure) -> Iterator[Finding]:
    """Ordinary ids that are never selected."""
    draws, rate = measured.main, structure.rate.value
    n_tokens = draws.tokens.n_tokens
    counts = np.bincount(draws.originals[draws.eligible], minlength=n_tokens)
    chosen = np.bincount(draws.originals[draws.selected], minlength=n_tokens)
    used = counts * rate >= MANY
    never = np.flatnonzero(used & (chosen == 0))
    never = never[never != measured.reading.ignored]
    name, total = "ids never selected", int(used.sum())
    if not total:
        return
    evidence = f"{len(never):,} of {total:,} frequent ids"
    if len(never) and len(draws.originals) >= FEWEST_UNITS:
        stated = len(draws.tokens.special) > 1
        cause = "Ordinary tokens are never predicted." if stated else SPECIAL_HINT
        verdict = Verdict.BROKEN if stated else Verdict.DIFFERS
        yield Finding(name, listed(never), "none", evidence, verdict, "never-selected", cause)
    else:
        yield Finding(name, "none", "none", evidence)
