"""Shows in a terminal how a text is written: each frame replaces the one before it."""

import os
import time
from itertools import groupby
from typing import TextIO

from torch import Tensor

from runs.terminal import printable
from trained.template import Template
from writing.frames import EMPTY, NEW, Cell, cells, wrap

SECONDS_PER_FRAME = 0.04
STYLES = {EMPTY: "2", NEW: "1;32"}  # faint; bold and green


def can_redraw(stream: TextIO) -> bool:
    """Whether a stream is a terminal that moves its cursor and shows every character."""
    encoding = (stream.encoding or "").lower().replace("-", "")
    return stream.isatty() and encoding == "utf8" and os.environ.get("TERM") != "dumb"


class Screen:
    """Draws a text in place whenever it is shown, at most 25 times per second.

    A text that is taller than the screen is not drawn before it is finished.
    """

    def __init__(self, stream: TextIO, template: Template):
        self.stream = stream
        self.template = template
        self.is_colored = "NO_COLOR" not in os.environ
        self.size = self._size()
        self.height = 0  # of the frame above the cursor
        self.drawn_at = -SECONDS_PER_FRAME
        self.before: Tensor | None = None

    def show(self, ids: Tensor) -> None:
        """Draw the text `ids` `[length]`, unless the last frame is younger than 0.04 seconds."""
        now = time.monotonic()
        if now - self.drawn_at < SECONDS_PER_FRAME:
            return
        start = self._start()
        width, rows = self.size
        before = ids if self.before is None else self.before
        lines = wrap(cells(ids, before, self.template), width - 1)
        if len(lines) >= rows:
            lines = []
        frame = "".join(f"{self._styled(line)}\x1b[K\n" for line in lines)
        self.stream.write(f"{start}{frame}\x1b[J")
        self.stream.flush()
        self.height = len(lines)
        self.drawn_at = now
        self.before = ids

    def finish(self, ids: Tensor) -> None:
        """Replace the last frame by the text `ids` `[length]` without styles; lines are as long as
        the text's own."""
        text, _ = self.template.filled(ids)
        self.stream.write(f"{self._start()}\x1b[J{printable(text)}\n")
        self.stream.flush()

    def _start(self) -> str:
        """Moves the cursor to where the last frame begins, or to the top of a cleared screen if its
        size has changed: the terminal may have wrapped the frame anew."""
        size = self.size
        self.size = self._size()
        if not self.height:
            return ""
        return f"\x1b[{self.height}A" if self.size == size else "\x1b[H\x1b[2J"

    def _size(self) -> tuple[int, int]:
        """Columns and rows; a terminal that does not know them says 0."""
        columns, rows = os.get_terminal_size(self.stream.fileno())
        return columns or 80, rows or 24

    def _styled(self, line: list[Cell]) -> str:
        """The characters of a line with the codes of their styles."""
        parts = []
        for kind, group in groupby(line, lambda cell: cell.kind):
            text = "".join(cell.character for cell in group)
            if self.is_colored and kind in STYLES:
                text = f"\x1b[{STYLES[kind]}m{text}\x1b[0m"
            parts.append(text)

        return "".join(parts)
