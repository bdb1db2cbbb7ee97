"""Ctrl-C and SIGTERM: finish the step, save, end with the exit code that the shell expects."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interruption:
    """Remembers the first signal. A second one ends the process at once."""

    def __init__(self) -> None:
        self.signal: int | None = None

    @property
    def exit_code(self) -> int:
        """0, or 128 and the number of the signal: 130 for Ctrl-C, 143 for SIGTERM."""
        return 0 if self.signal is None else 128 + self.signal

    @contextmanager
    def watched(self) -> Iterator[None]:
        """The time in which signals are remembered."""
        before = {number: signal.signal(number, self._remember) for number in (signal.SIGINT, signal.SIGTERM)}
        yield
        for number, handler in before.items():
            signal.signal(number, handler)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        signal.signal(number, signal.SIG_DFL)
        os.write(2, b"\nstopping when this step, or this evaluation, is done; once more ends at once, without saving\n")
