"""Prints the table of known bugs in auditing/README.md: python -m auditing.tests.catalogue."""

from auditing.findings import CATALOGUE


def link(cited: str) -> str:
    """A citation in Markdown."""
    if "#" in cited:
        return f"[{cited}](https://github.com/{cited.replace('#', '/issues/')})"
    repository, commit, path = cited.replace("@", ":").split(":")
    return f"[{repository}](https://github.com/{repository}/blob/{commit}/{path})"


def table() -> str:
    """The table in Markdown."""
    rows = [
        f"| `{bug.name}` | {bug.verdict} | {bug.cause} | {', '.join(map(link, bug.cited.split()))} |"
        for bug in CATALOGUE.values()
    ]
    return "\n".join(
        ["| name | verdict | usual cause | found in |", "|---|---|---|---|", *rows]
    )


if __name__ == "__main__":
    print(table())
