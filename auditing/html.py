"""A report as one HTML file, with its pictures in it: for a telephone or a screen, light or dark."""

import base64
import html
from collections.abc import Sequence

from auditing.finding import Finding, Verdict, by_verdict
from auditing.report import Report, note

STYLE = """
:root { color-scheme: light dark; --text: #222; --quiet: #59636e; --line: #d1d9e0; --back: #fff;
  --ok: #1a7f37; --differs: #9a6700; --broken: #cf222e; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --quiet: #9198a1; --line: #3d444d; --back: #0d1117;
  --ok: #3fb950; --differs: #d29922; --broken: #f85149; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 44rem; margin: 1rem auto; padding: 0 .75rem;
  color: var(--text); background: var(--back); overflow-wrap: anywhere; }
section { border-top: 1px solid var(--line); padding: .6rem 0; } section p { margin: .2rem 0; }
.ok { color: var(--ok); } .differs { color: var(--differs); } .broken { color: var(--broken); font-weight: 700; }
.found { font-size: 1.1em; font-variant-numeric: tabular-nums; } .note { color: var(--quiet); }
svg { width: 100%; height: 3.5rem; } svg rect { fill: var(--broken); } svg line { stroke: var(--quiet); }
.ok svg rect, .differs svg rect { fill: currentColor; } figure { margin: 1rem 0; } img { max-width: 100%; }
"""


def page(report: Report, pictures: Sequence[tuple[str, bytes]]) -> str:
    """The whole file. `pictures` are captions and PNG files."""
    sections = "\n".join(section(finding) for finding in by_verdict(report.findings))
    figures = "\n".join(figure(caption, image) for caption, image in pictures)
    return f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Folio audit</title><style>{STYLE}</style></head>
<body>
<h1>Folio audit: <span class="{report.verdict}">{report.verdict}</span></h1>
<p>{html.escape(report.title)}</p>
<p><strong>{html.escape(report.summary)}</strong></p>
{sections}
{figures}
</body>
</html>
"""


def section(finding: Finding) -> str:
    """A finding: the evidence first, a small picture of it, and the usual cause."""
    found, expected, evidence, why, name = map(
        html.escape, (finding.found, finding.expected, finding.evidence, note(finding), finding.name)
    )
    picture = f'<div class="{finding.verdict}">{bars(finding.chart)}</div>' if finding.verdict != Verdict.OK else ""
    cause = f'<p class="note">{why}</p>' if why else ""
    return (
        f'<section><p><span class="{finding.verdict}">{finding.verdict}</span> {name}</p><p class="found">{found}</p>'
        f'{picture}<p class="note">expected: {expected} · {evidence}</p>{cause}</section>'
    )


def bars(shares: Sequence[float]) -> str:
    """Bars of shares by class, and a line at their mean."""
    if len(shares) < 2 or max(shares) <= 0:
        return ""
    width, heights = 100 / len(shares), [30 * max(0.0, share) / max(shares) for share in shares]
    drawn = "".join(
        f'<rect x="{i * width:.2f}" y="{30 - height:.2f}" width="{0.85 * width:.2f}" height="{height:.2f}"/>'
        for i, height in enumerate(heights)
    )
    level = 30 - sum(heights) / len(heights)
    line = f'<line x1="0" x2="100" y1="{level:.2f}" y2="{level:.2f}" stroke-width=".3" stroke-dasharray="2"/>'
    return f'<svg viewBox="0 0 100 30" preserveAspectRatio="none" role="img" aria-label="shares">{drawn}{line}</svg>'


def figure(caption: str, image: bytes) -> str:
    """A picture embedded as a data URI."""
    text, source = html.escape(caption), base64.b64encode(image).decode()
    return f'<figure><img alt="{text}" src="data:image/png;base64,{source}"><figcaption>{text}</figcaption></figure>'
