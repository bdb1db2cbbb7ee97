"""The catalogue of known bugs: their names, usual causes, and where each was found.

python -m auditing.masks.catalogue     prints the tables of docs/audit.md
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from auditing.finding import Finding, Verdict
from auditing.masks.battery import Pair
from auditing.masks.recipes import RECIPES, Recipe, Structure

EDGE, LARGE = 10, 0.5  # positions at either end of a window at which it cuts spans and words; a relative difference


@dataclass(frozen=True)
class Bug:
    """An entry. Findings about the outcomes, or with the names, in `explains` follow from this one."""

    name: str
    outcome: str  # labels, selected, kind or replacement
    cause: str
    verdict: str = "broken"
    cited: str = ""  # owner/repository#number of an issue or pull request, or owner/repository@commit:path
    explains: tuple[str, ...] = ()
    shares: tuple[tuple[float, float, float], ...] = ()  # that it makes of 80/10/10


TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
CATALOGUE = {name: Bug(name, **entry) for name, entry in TABLE.items()}


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


def finding(
    name: str, found: str, expected: str, evidence: str, bug: str | None = None, **fields: Any
) -> Finding:  # fmt: skip
    """A finding with the verdict and the cause that the catalogue has for its bug, unless `fields` state others."""
    if bug is None:
        return Finding(name, found, expected, evidence, **fields)
    entry = CATALOGUE.get(bug, Bug(bug, name, "No recipe has this dependence: the draws use what they should not."))
    return Finding(name, found, expected, evidence, **{"verdict": Verdict(entry.verdict), "bug": bug,
                   "cause": entry.cause, **fields})  # fmt: skip


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


def link(cited: str) -> str:
    """A citation in Markdown."""
    if "#" in cited:
        repository, number = cited.split("#")
        return f"[{cited}](https://github.com/{repository}/issues/{number})"
    repository, place = cited.split("@")
    commit, path = place.split(":")
    return f"[{repository}](https://github.com/{repository}/blob/{commit}/{path})"


def table() -> str:
    """The table of docs/audit.md in Markdown."""
    rows = [
        f"| `{bug.name}` | {bug.verdict} | {bug.cause} | {', '.join(map(link, bug.cited.split()))} |"
        for bug in CATALOGUE.values()
    ]
    return "\n".join(["| name | verdict | usual cause | found in |", "|---|---|---|---|", *rows])


if __name__ == "__main__":
    print(table())
