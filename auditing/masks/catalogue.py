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
from auditing.masks.recipes import Recipe, permitting



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


TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
CATALOGUE = {name: Bug(name, **entry) for name, entry in TABLE.items()}


def named(pair: Pair) -> str:
    """The name in the catalogue of a dependence that was found; of a new one, the pair itself."""
    zeros, shares = pair.zeros, pair.found.shares
    if pair.key in (("selected", "position"), ("selected", "id")) and len(zeros):
        at_ends = len(zeros) <= 2 and bool({0, 1, len(shares) - 1} & set(zeros))
        return "first-position" if pair.circumstance == "position" and at_ends else "never-selected"
    if pair.key == ("selected", "neighbors"):
        best = int(shares[1:20].argmax()) + 1
        if pair.found.mean < 0.5 and shares[best] > 0.8 and shares[0] < 0.5:
            return "regular-pattern"
        return "never-neighbors" if shares[0] < pair.found.mean else pair.name
    return pair.name


def finding(
    name: str, found: str, expected: str, evidence: str, bug: str | None = None, **fields: Any
) -> Finding:  # fmt: skip
    """A finding with the verdict and the cause that the catalogue has for its bug, unless `fields` state others."""
    if bug is None:
        return Finding(name, found, expected, evidence, **fields)
    entry = CATALOGUE.get(bug, Bug(bug, name, "No recipe has this dependence: the draws use what they should not."))
    return Finding(name, found, expected, evidence, **{"verdict": Verdict(entry.verdict), "bug": bug,
                   "cause": entry.cause, **fields})  # fmt: skip


def judged(pair: Pair, recipe: Recipe, unit: str) -> Finding:
    """The finding about a dependence: all right if the recipe has it, `differs` if only another one has, and that one
    selects the same unit: token, span or word."""
    bug, mean = named(pair), pair.found.mean
    known = bug == pair.name and not is_large(pair)
    others = [each for each in permitting(*pair.key) if known and each.unit in (unit, "id")]
    chart = tuple(np.nan_to_num(pair.found.shares).tolist()) if len(pair.found.shares) > 1 else ()
    line = (f"{pair.outcome} by {pair.circumstance}", pair.text(), f"{mean:.1%}" if mean else "none",
            f"|z| = {pair.z:.1f}")  # fmt: skip
    if recipe in others:
        return finding(*line, chart=chart)
    fields = {"verdict": Verdict.DIFFERS, "recipes": tuple(each.name for each in others)} if others else {}
    return finding(*line, bug, chart=chart, **fields)


def is_large(pair: Pair) -> bool:
    """Whether positions that the ends of a window cannot reach are selected half or twice as often as others."""
    margin = EDGE if len(pair.found.shares) > 8 * EDGE else 1
    inner = pair.found.shares[margin:-margin]
    return pair.circumstance == "position" and bool((np.abs(inner / pair.found.mean - 1) > LARGE).any())


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
        f"| `{bug.name}` | {bug.verdict} | {bug.cause} | {link(bug.cited) if bug.cited else ''} |"
        for bug in CATALOGUE.values()
    ]
    return "\n".join(["| name | verdict | usual cause | found in |", "|---|---|---|---|", *rows])


if __name__ == "__main__":
    print(table())
