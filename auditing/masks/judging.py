"""Judges a dependence that was found: its name in the catalogue, and the recipes that have it."""

from dataclasses import replace
from typing import Any

import numpy as np

from auditing.findings import CATALOGUE, Bug, Finding, Verdict, finding
from auditing.masks.battery import Pair
from auditing.masks.recipes import RECIPES, Recipe, Structure

EDGE, LARGE = 10, 0.5  # positions at either end of a window at which it cuts spans and words; a relative difference


def named(pair: Pair) -> str:
    """The name in the catalogue of a dependence that was found; of a new one, the pair itself."""
    zeros, shares = pair.found.never, pair.found.shares
    if pair.key == ("selected", "position"):
        eighths = [part.mean() for part in np.array_split(shares[np.isfinite(shares)], 8) if len(part)]
        level = 0.8 if len(zeros) > 1 else 0.88  # of the part that a limit reaches: a rate that falls ends above 0
        if eighths[-1] < 0.5 * eighths[0] and eighths[1] > level * eighths[0]:
            return "left-truncated"
        at_ends = len(zeros) <= 2 and bool({0, 1, len(shares) - 1} & set(zeros))
        return ("first-position" if at_ends else "never-selected") if len(zeros) else pair.name
    if pair.key == ("selected", "neighbors"):
        best = int(shares[1:20].argmax()) + 1
        if pair.found.mean < 0.5 and shares[best] > max(0.8, shares[0]):
            return "regular-pattern"
        return "never-neighbors" if shares[0] < pair.found.mean else pair.name
    return "same-mask-in-batch" if pair.key == ("selected", "whole rows") else pair.name


def judged(pair: Pair, recipe: Recipe, structure: Structure) -> Finding:
    """The finding about a dependence: all right if the recipe has it, `differs` if only another one has, and that one
    fits what the target selects: tokens, spans or words, and rates that vary or do not."""
    bug, mean, shares = named(pair), pair.found.mean, pair.found.shares
    margin = EDGE if len(shares) > 8 * EDGE else 1
    inside = np.abs(shares[margin:-margin] / max(mean, 1e-9) - 1) if pair.circumstance == "position" else np.zeros(1)
    known = bug == pair.name and not (inside > LARGE).any()  # which the ends of a window cannot explain
    units = (structure.unit, "id", "batch")
    having = [each for each in RECIPES if pair.circumstance in each.depends.get(pair.outcome, ())]
    fitting = [each for each in having if each.unit in units and (each.rate is not None or structure.varies)]
    others = fitting if known else []
    line = (f"{pair.outcome} by {pair.circumstance}", pair.text(), f"{mean:.1%}" if mean else "none",
            f"|z| = {pair.z:.1f}")  # fmt: skip
    fields: dict[str, Any] = {"chart": tuple(np.nan_to_num(shares).tolist()) if len(shares) > 1 else ()}
    if recipe in others:
        return finding(*line, **fields)
    if others:
        fields |= {"verdict": Verdict.DIFFERS, "recipes": tuple(each.name for each in others)}
    return finding(*line, bug, **fields)


def explains(root: Finding, other: Finding) -> bool:
    """Whether a finding may follow from a broken one: the catalogue says so, or both are about the same outcome, whose
    dependences follow from the surest one."""
    bug = CATALOGUE.get(root.bug or "", Bug("", root.name.partition(" by ")[0], ""))
    outcome = CATALOGUE[other.bug].outcome if other.bug in CATALOGUE else other.name.partition(" by ")[0]
    return other.bug in bug.explains or outcome in bug.explains or (" by " in root.name and outcome == bug.outcome)


def without_consequences(findings: list[Finding]) -> list[Finding]:
    """The findings with those that follow from an earlier one as `differs`, without a bug of their own."""
    roots: list[Finding] = []
    marked = []
    for each in findings:
        root = next((root for root in roots if each.bug != root.bug and explains(root, each)), None)
        if root and each.verdict != Verdict.OK:
            each = replace(each, verdict=Verdict.DIFFERS, bug=None, cause=f"May follow from {root.bug}.", recipes=())
        elif each.verdict == Verdict.BROKEN:
            roots.append(each)
        marked.append(each)
    return marked
