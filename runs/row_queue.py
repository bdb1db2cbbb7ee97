"""A queue of rows that wait while the disk is full."""

from collections import deque
from collections.abc import Callable
from typing import Any

Row = dict[str, Any]


class RowQueue:
    """Writes rows in order, each exactly once, and keeps the rows that could not be written."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[[Row], None], Row]] = deque()

    def append(self, write: Callable[[Row], None], row: Row) -> None:
        """Queue `row` for `write`, then write every queued row. If that raises OSError, unwritten rows stay queued."""
        self._waiting.append((write, row))
        self.write_all()

    def write_all(self) -> None:
        """Write every queued row. If that raises OSError, unwritten rows stay queued."""
        while self._waiting:
            write, row = self._waiting[0]
            write(row)
            self._waiting.popleft()
