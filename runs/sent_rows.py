"""The rows of a file that grows, and how many of them the dashboard has."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runs.run_folder import RunFolderError

ROWS_PER_MESSAGE = 1_000


class SentRows:
    """Reads a file of JSON rows from where the dashboard's copy ends."""

    def __init__(self, path: Path):
        self.path = path
        self.n = 0  # rows that the dashboard has
        self._offset = 0  # of the next row, in bytes

    def next(self) -> list[Any]:
        """The next rows, at most ROWS_PER_MESSAGE. Raises RunFolderError if one is damaged."""
        try:
            return [json.loads(line) for line in itertools.islice(self._lines(self._offset), ROWS_PER_MESSAGE)]
        except ValueError as error:
            raise RunFolderError(f"{self.path.name} is damaged") from error

    def n_remaining(self) -> int:
        """The number of rows that the dashboard does not have."""
        return sum(1 for _ in self._lines(self._offset))

    def continue_from(self, n: int) -> bool:
        """Continue after the first `n` rows. Returns whether the file has that many; if not, nothing changes."""
        start, offset = (self.n, self._offset) if n >= self.n else (0, 0)
        lengths = [len(line) for line in itertools.islice(self._lines(offset), n - start)]
        if len(lengths) < n - start:
            return False
        self.n, self._offset = n, offset + sum(lengths)
        return True

    def _lines(self, start: int) -> Iterator[bytes]:
        """The complete lines from byte `start`."""
        if self.path.exists() and self.path.stat().st_size > start:
            with open(self.path, "rb") as file:
                file.seek(start)
                yield from itertools.takewhile(lambda line: line.endswith(b"\n"), file)
