"""Writes the tables in benchmarks/results into the pages of docs/.

python -m benchmarks.page

Such a table stands between two comments: <!-- from amd-epyc-2-cores/throughput.json --> and <!--
end -->.
"""

import json
import re
from pathlib import Path

from benchmarks.command import RESULTS, markdown
from runs.files import ROOT, write_atomically

PAGES = sorted((ROOT / "docs").glob("*.md"))
BLOCK = re.compile(r"(<!-- from (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(page: str) -> str:
    """The text of a page with all its tables as the results have them."""
    return BLOCK.sub(
        lambda block: f"{block[1]}{shown(RESULTS / block[2])}{block[3]}", page
    )


def shown(path: Path) -> str:
    """The table of a result, and under it the machine, versions, commit and date."""
    content = json.loads(path.read_text(encoding="utf-8"))
    facts = content["machine"]
    threads = f"{facts['threads']} thread{'s' * (facts['threads'] != '1')}"
    commits = {
        facts["commit"],
        *(trial["commit"] for trial in content.get("trials", [])),
    }
    where = (
        f"{facts['machine']}, {threads}, PyTorch {facts['torch']}, "
        f"commit {', '.join(sorted(commits))}, {facts['date']}."
    )
    return f"{markdown(content['table'])}\n{where.replace('+,', ' with uncommitted changes,')}\n"


def fill_pages() -> None:
    for page in PAGES:
        write_atomically(page, filled(page.read_text(encoding="utf-8")).encode())


if __name__ == "__main__":
    fill_pages()
