"""Findings of an audit: what was found, what was expected, and how sure that is."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


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


def by_verdict(findings: Sequence[Finding]) -> list[Finding]:
    """Broken findings come first; those of the same verdict stay in their order."""
    return sorted(findings, key=lambda each: -list(Verdict).index(each.verdict))
