"""Reports of an audit: for the terminal, at 100 columns, and as JSON."""

import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from auditing.finding import Finding, Verdict, by_verdict

COLORS = {Verdict.OK: "32", Verdict.DIFFERS: "33", Verdict.BROKEN: "1;31"}
INDENT = 9


@dataclass(frozen=True)
class Report:
    """Everything that a report shows. `title` names the target, `summary` follows the findings."""

    title: str
    findings: Sequence[Finding]
    summary: str

    @property
    def verdict(self) -> Verdict:
        """The worst of all findings."""
        return by_verdict(self.findings)[0].verdict


def terminal(report: Report, colors: bool) -> str:
    """The report as lines of at most 100 columns: the evidence of each finding, and the cause below it unless it is
    ok."""
    lines = [*textwrap.wrap(report.title, 100), ""]
    for finding in report.findings:
        text = f"{finding.verdict:{INDENT - 2}}  {finding.name}: {finding.found}"
        text += "" if finding.found == finding.expected else f"; expected {finding.expected}"
        rows = textwrap.wrap(f"{text} ({finding.evidence})", 100, subsequent_indent=" " * INDENT)
        if colors:
            rows[0] = rows[0].replace(finding.verdict, f"\x1b[{COLORS[finding.verdict]}m{finding.verdict}\x1b[0m", 1)
        lines += rows
        lines += textwrap.wrap(note(finding), 100, initial_indent=" " * INDENT, subsequent_indent=" " * INDENT)
    return "\n".join([*lines, "", *textwrap.wrap(report.summary, 100)])


def note(finding: Finding) -> str:
    """The bug's slug, its usual cause, and the recipes that have what was found, whatever else they have."""
    slug = f"[{finding.bug}] " if finding.bug else ""
    right = f" In this respect alone, right for: {', '.join(finding.recipes)}." if finding.recipes else ""
    return "" if finding.verdict == Verdict.OK else f"{slug}{finding.cause}{right}".strip()


def as_json(report: Report) -> str:
    """The report as a JSON object."""
    findings = [asdict(finding) for finding in report.findings]
    content = {"title": report.title, "verdict": report.verdict, "findings": findings, "summary": report.summary}
    return json.dumps(content, indent=2) + "\n"


def counts_of(findings: Sequence[Finding]) -> str:
    """How many findings there are of each verdict."""
    return ", ".join(f"{sum(finding.verdict == verdict for finding in findings)} {verdict}" for verdict in Verdict)
