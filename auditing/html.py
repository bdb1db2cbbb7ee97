"""A report as one HTML file, with its pictures in it."""

import base64
import html
from collections.abc import Sequence

from auditing.finding import Finding, Verdict
from auditing.report import Report, note

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .35rem .6rem; border-bottom: 1px solid #ddd; }
td.found, td.expected, td.evidence { font-variant-numeric: tabular-nums; }
.ok { color: #1a7f37; } .differs { color: #9a6700; } .broken { color: #cf222e; font-weight: 700; }
.note { color: #555; font-size: .9em; } figure { margin: 2rem 0; } img { max-width: 100%; }
"""


def page(report: Report, pictures: Sequence[tuple[str, bytes]]) -> str:
    """The whole file. `pictures` are captions and PNG files."""
    rows = "\n".join(row(finding) for finding in sorted(report.findings, key=order))
    figures = "\n".join(figure(caption, image) for caption, image in pictures)
    return f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Folio audit</title><style>{STYLE}</style></head>
<body>
<h1>Folio audit: <span class="{report.verdict}">{report.verdict}</span></h1>
<p>{html.escape(report.title)}</p>
<p><strong>{html.escape(report.summary)}</strong></p>
<table>
<tr><th>verdict</th><th>checked</th><th>found</th><th>expected</th><th>evidence</th></tr>
{rows}
</table>
{figures}
</body>
</html>
"""


def order(finding: Finding) -> int:
    """Broken findings come first; those of the same verdict stay in their order."""
    return [Verdict.BROKEN, Verdict.DIFFERS, Verdict.OK].index(finding.verdict)


def row(finding: Finding) -> str:
    """A finding as a row of the table, with the cause below what was checked."""
    why = note(finding)
    below = f'<div class="note">{html.escape(why)}</div>' if why else ""
    cells = "".join(
        f'<td class="{name}">{html.escape(getattr(finding, name))}</td>' for name in ("found", "expected", "evidence")
    )
    return (
        f'<tr><td class="{finding.verdict}">{finding.verdict}</td>'
        f"<td>{html.escape(finding.name)}{below}</td>{cells}</tr>"
    )


def figure(caption: str, image: bytes) -> str:
    """A picture embedded as a data URI."""
    text = html.escape(caption)
    source = base64.b64encode(image).decode()
    return f'<figure><img alt="{text}" src="data:image/png;base64,{source}"><figcaption>{text}</figcaption></figure>'
