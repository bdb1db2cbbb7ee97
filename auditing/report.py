"""Reports of an audit: for the terminal, at 100 columns, as JSON, and as one HTML file for a
telephone or a screen."""

import html
import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from auditing.findings import Finding, Verdict, by_verdict

COLORS = {Verdict.OK: "32", Verdict.DIFFERS: "33", Verdict.BROKEN: "1;31"}
INDENT = 9
STYLE = """
:root { color-scheme: light dark; --text: #222; --quiet: #59636e; --line: #d1d9e0; --back: #fff; }
.ok { --verdict: #1a7f37; } .differs { --verdict: #9a6700; } .broken { --verdict: #cf222e; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6edf3; --quiet: #9198a1; --line: #3d444d; --back: #0d1117; }
  .ok { --verdict: #3fb950; } .differs { --verdict: #d29922; } .broken { --verdict: #f85149; }
}
body { font: 16px/1.5 system-ui, sans-serif; max-width: 44rem; margin: 1rem auto; padding: 0 .75rem;
  color: var(--text); background: var(--back); overflow-wrap: anywhere; }
section { border-top: 1px solid var(--line); padding: .6rem 0; } section p { margin: .2rem 0; }
b { color: var(--verdict); } .note { color: var(--quiet); }
.found { font-size: 1.1em; font-variant-numeric: tabular-nums; }
svg { width: 100%; height: 3.5rem; } svg rect { fill: var(--verdict); } svg line { stroke: var(--quiet); }
"""


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
    """The report as lines of at most 100 columns: the evidence of each finding, and the cause below
    it unless it is ok."""
    lines = [*textwrap.wrap(report.title, 100), ""]

    for finding in report.findings:
        text = f"{finding.verdict:{INDENT - 2}}  {finding.name}: {finding.found}"
        text += (
            ""
            if finding.found == finding.expected
            else f"; expected {finding.expected}"
        )
        rows = textwrap.wrap(
            f"{text} ({finding.evidence})", 100, subsequent_indent=" " * INDENT
        )
        if colors:
            rows[0] = rows[0].replace(
                finding.verdict,
                f"\x1b[{COLORS[finding.verdict]}m{finding.verdict}\x1b[0m",
                1,
            )
        lines += rows
        lines += textwrap.wrap(
            note(finding),
            100,
            initial_indent=" " * INDENT,
            subsequent_indent=" " * INDENT,
        )

    return "\n".join([*lines, "", *textwrap.wrap(report.summary, 100)])


def note(finding: Finding) -> str:
    """The bug's slug, its usual cause, and the recipes that have what was found, whatever else they
    have."""
    slug = f"[{finding.bug}] " if finding.bug else ""
    right = (
        f" In this respect alone, right for: {', '.join(finding.recipes)}."
        if finding.recipes
        else ""
    )
    return (
        "" if finding.verdict == Verdict.OK else f"{slug}{finding.cause}{right}".strip()
    )


def as_json(report: Report) -> str:
    """The report as a JSON object."""
    return json.dumps({"verdict": report.verdict} | asdict(report), indent=2) + "\n"


def counts_of(findings: Sequence[Finding]) -> str:
    """The number of findings per verdict, in words."""
    return ", ".join(
        f"{sum(finding.verdict == verdict for finding in findings)} {verdict}"
        for verdict in Verdict
    )


def page(report: Report) -> str:
    """The report as an HTML file, light or dark."""
    sections = "\n".join(section(finding) for finding in by_verdict(report.findings))
    return f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Folio audit</title><style>{STYLE}</style></head>
<body>
<h1 class="{report.verdict}">Folio audit: <b>{report.verdict}</b></h1>
<p>{html.escape(report.title)}</p>
<p><strong>{html.escape(report.summary)}</strong></p>
{sections}
</body>
</html>
"""


def section(finding: Finding) -> str:
    """A finding: the evidence first, a small picture of it, and the usual cause."""
    found, expected, evidence, why, name = map(
        html.escape,
        (
            finding.found,
            finding.expected,
            finding.evidence,
            note(finding),
            finding.name,
        ),
    )
    return f"""<section class="{finding.verdict}">
<p><b>{finding.verdict}</b> {name}</p>
<p class="found">{found}</p>
{bars(finding.chart)}
<p class="note">expected: {expected} · {evidence}</p>
<p class="note">{why}</p>
</section>"""


def bars(shares: Sequence[float]) -> str:
    """Bars of shares by class, and a line at their mean."""
    if len(shares) < 2 or max(shares) <= 0:
        return ""
    width = 100 / len(shares)
    heights = [30 * max(0.0, share) / max(shares) for share in shares]
    drawn = "".join(
        f'<rect x="{i * width:.2f}" y="{30 - height:.2f}" width="{0.85 * width:.2f}" height="{height:.2f}"/>'
        for i, height in enumerate(heights)
    )
    level = 30 - sum(heights) / len(heights)
    line = f'<line x1="0" x2="100" y1="{level:.2f}" y2="{level:.2f}" stroke-width=".3" stroke-dasharray="2"/>'
    return f'<svg viewBox="0 0 100 30" preserveAspectRatio="none" role="img" aria-label="shares">{drawn}{line}</svg>'
