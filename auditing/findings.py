"""Findings of an audit, and the catalogue of known bugs: their names, usual causes, and where each
was found."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any


class Verdict(StrEnum):
    """`differs` is unusual but right for some recipe or purpose; `broken` is right for none."""

    OK = "ok"
    DIFFERS = "differs"
    BROKEN = "broken"


@dataclass(frozen=True)
class Finding:
    """One line of a report."""

    name: str  # what was looked at
    found: str
    expected: str
    evidence: str  # a z-score or an exact count
    verdict: Verdict = Verdict.OK
    bug: str | None = None  # its slug, such as `labels-shifted`; None if all is right
    cause: str = ""  # the usual cause, in a sentence or two
    recipes: tuple[str, ...] = ()  # that have what was found
    chart: tuple[float, ...] = ()  # what was measured, by class, for a small picture

    def line(self) -> str:
        """The finding in one line, such as an AssertionError needs it."""
        slug = f" [{self.bug}]" if self.bug else ""
        line = f"{self.verdict}: {self.name}{slug}: found {self.found}, expected {self.expected} ({self.evidence})"
        return f"{line}. {self.cause}" if self.cause else line


@dataclass(frozen=True)
class Bug:
    """An entry of the catalogue. Findings may follow from it if their outcome or their name is in
    `explains`."""

    name: str
    # labels, selected, kind or replacement; of a pipeline, its batches, loss, model or training
    outcome: str
    cause: str
    verdict: str = "broken"
    cited: str = ""  # owner/repository#number of an issue or pull request, or owner/repository@commit:path
    explains: tuple[str, ...] = ()
    shares: tuple[tuple[float, float, float], ...] = ()  # that it makes of 80/10/10


TABLE = tomllib.loads(
    Path(__file__).with_name("catalogue.toml").read_text(encoding="utf-8")
)
CATALOGUE = {name: Bug(name, **entry) for name, entry in TABLE.items()}


def finding(
    name: str,
    found: str,
    expected: str,
    evidence: str,
    bug: str | None = None,
    **fields: Any,
) -> Finding:
    """A finding with the verdict and the cause that the catalogue has for its bug, unless `fields`
    state others."""
    if bug is None:
        return Finding(name, found, expected, evidence, **fields)
    entry = CATALOGUE.get(
        bug,
        Bug(
            bug,
            name,
            "No recipe has this dependence: the draws use what they should not.",
        ),
    )
    fields = {
        "verdict": Verdict(entry.verdict),
        "bug": bug,
        "cause": entry.cause,
        **fields,
    }
    return Finding(name, found, expected, evidence, **fields)


def by_verdict(findings: Sequence[Finding]) -> list[Finding]:
    """Broken findings come first; those of the same verdict stay in their order."""
    return sorted(findings, key=lambda each: -list(Verdict).index(each.verdict))


def explains(root: Finding, other: Finding) -> bool:
    """Whether a finding may follow from a broken one: the catalogue says so, or both are about the
    same outcome, whose dependences follow from the surest one."""
    bug = CATALOGUE.get(root.bug or "", Bug("", root.name.partition(" by ")[0], ""))
    outcome = (
        CATALOGUE[other.bug].outcome
        if other.bug in CATALOGUE
        else other.name.partition(" by ")[0]
    )
    return (
        other.bug in bug.explains
        or outcome in bug.explains
        or (" by " in root.name and outcome == bug.outcome)
    )


def without_consequences(findings: list[Finding]) -> list[Finding]:
    """The findings with those that follow from an earlier one as `differs`, without a bug of their
    own."""
    roots: list[Finding] = []
    marked = []

    for each in findings:
        root = next(
            (root for root in roots if each.bug != root.bug and explains(root, each)),
            None,
        )
        if root and each.verdict != Verdict.OK:
            each = replace(
                each,
                verdict=Verdict.DIFFERS,
                bug=None,
                cause=f"May follow from {root.bug}.",
                recipes=(),
            )
        elif each.verdict == Verdict.BROKEN:
            roots.append(each)
        marked.append(each)

    return marked
