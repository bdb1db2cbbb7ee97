"""Ctrl-C and SIGTERM, which end a run after it has saved."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from distributed.launch import started_by_torchrun


class Interruption:
    """Stops a trainer at the first Ctrl-C or SIGTERM, so that the run can save.

    A second signal of the same kind ends the process at once. torchrun repeats signals, so with it
    the process ends only when it has saved.
    """

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.signal: int | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        before = {
            number: signal.signal(number, self._remember)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.signal, self.trainer.must_stop = self.signal or number, True
        if started_by_torchrun():
            return
        signal.signal(number, signal.SIG_DFL)
        with suppress(OSError):  # stderr may be a pipe to `tee`, which Ctrl-C has ended too
            os.write(
                2,
                b"\nstopping after this step, evaluation or compilation; Ctrl-C again ends without saving\n",
            )
