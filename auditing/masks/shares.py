"""Checks what stands at the selected positions: the shares of [MASK], random and unchanged tokens."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from auditing.finding import Finding, Verdict
from auditing.masks.draws import Draws
from auditing.masks.recipes import RECIPES, SIGNATURES, Shares
from auditing.statistics import Share, share_of

TOLERANCE = 0.0025  # differences of a share below this are not reported, even if they are no chance
NAMES = ("[MASK]", "random", "unchanged")


@dataclass(frozen=True)
class Found:
    """The shares of a target. A random token that is the original looks unchanged."""

    parts: tuple[Share, Share, Share]
    same: tuple[float, ...]  # how probable it may be that a random token is the original

    @property
    def shares(self) -> Shares:
        masked, random, kept = (part.value for part in self.parts)
        return masked, random, kept


def found_shares(draws: Draws) -> Found:
    """Measure the shares, with errors from independent units."""
    totals = draws.per_unit(draws.selected)
    parts = [share_of(draws.per_unit(where), totals) for where in (draws.masked, draws.randomized, draws.kept)]
    ordinary, n_tokens = len(draws.tokens.ordinary), draws.tokens.n_tokens
    drawn = draws.inputs[draws.randomized]
    only = 1 / max(1, len(np.unique(drawn)))
    # Never the original; drawn from the ordinary ids, from all ids, or from the ids that were seen.
    return Found((parts[0], parts[1], parts[2]), tuple(sorted({0.0, 1 / ordinary, 1 / n_tokens, only})))


def fits(found: Found, shares: Shares) -> bool:
    """Whether the shares differ from `shares` by no more than chance, for some way to draw random tokens."""
    return any(
        all(
            abs(part.value - value) <= TOLERANCE or not part.differs(value)
            for part, value in zip(found.parts, seen_as(shares, same), strict=True)
        )
        for same in found.same
    )


def seen_as(shares: Shares, same: float) -> Shares:
    """Shares as they look if a random token is the original with probability `same`."""
    masked, random, kept = shares
    return masked, random * (1 - same), kept + random * same


def signature(found: Found) -> tuple[str, str]:
    """The slug and the usual cause of the bug whose shares fit best."""
    fitting = [(shares, slug, cause) for shares, slug, cause in SIGNATURES if fits(found, shares)]
    if not fitting:
        return "other-shares", ""
    _, slug, cause = min(
        fitting, key=lambda each: sum(abs(one - other) for one, other in zip(found.shares, each[0], strict=True))
    )
    return slug, cause


def check_shares(
    draws: Draws, found: Found, expected: Shares, source: str, stated: bool, selected: float, rate: float | None
) -> Iterator[Finding]:
    """The three shares against the expected ones, and the bug that leads to them if they differ.

    `source` says where the expected shares come from, and `stated` whether the target must have them. `selected` is the
    share of selected positions, and `rate` the expected one.
    """
    verdict, bug, cause = Verdict.OK, None, ""
    fitting: tuple[str, ...] = ()
    if not fits(found, expected):
        verdict = Verdict.BROKEN if stated else Verdict.DIFFERS
        bug, cause = signature(found)
        cause = cause or f"The shares are not those of {source}."
        if bug == "kept-without-label" and rate and abs(selected / (0.9 * rate) - 1) < 0.03:
            verdict = Verdict.BROKEN
        fitting = tuple(sorted({recipe.name for recipe in RECIPES if fits(found, recipe.shares)}))
    total = int(draws.selected.sum())
    for name, part, value in zip(NAMES, found.parts, expected, strict=True):
        is_off = verdict != Verdict.OK and abs(part.value - value) > TOLERANCE
        yield Finding(
            f"{name} at selected",
            f"{part.value:.2%}",
            f"{value:.1%}",
            f"z = {part.z(value):+.1f}" if part.stderr else f"{round(part.value * total):,} of {total:,}",
            verdict if is_off else Verdict.OK,
            bug if is_off else None,
            cause if is_off else "",
            fitting if is_off else (),
            z=part.z(value),
        )
        if is_off:
            cause = ""  # said once
