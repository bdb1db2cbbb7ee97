"""Counts changes, so that an open page can ask cheaply whether it has to load anything."""

import re
import secrets
from collections import Counter

from starlette.types import Scope

LIST, COMPARE = "list", "compare"  # the names of the pages with all runs; a run's page has its uuid
# labml's own requests that change a run or the list. Others that are not GET read, or save what the page itself shows.
CHANGES = re.compile(r"/api/v1/(?:[^/]+/track|run/(?P<run>[^/]+)(?:/claim)?|runs(?:/.*)?)")


class Revisions:
    """A revision per page. It differs after a change, and after a restart of the server."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self.restart()

    def restart(self) -> None:
        """Count a change of all pages."""
        self._start = secrets.token_hex(4)

    def changed(self, *pages: str) -> None:
        """Count a change of runs, by their uuids, or of the list."""
        self._counts.update(pages)

    def of(self, page: str) -> str:
        return f"{self._start}-{self._counts[page]}"

    def notice(self, scope: Scope) -> None:
        """Count what one of labml's requests changes."""
        found = CHANGES.fullmatch(scope["path"])
        if found and scope["method"] != "GET":
            query = re.search(r"run_uuid=(\w+)", scope["query_string"].decode("ascii", "replace"))
            self.changed(LIST, COMPARE, *filter(None, (found["run"], query and query[1])))
