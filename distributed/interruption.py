"""Signals that end a run after it has saved, such as Ctrl-C."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

from distributed.launch import started_by_torchrun

if TYPE_CHECKING:
    from training.loop import Trainer

STOPPED = b"\nstopping after this step, evaluation or compilation; Ctrl-C again ends without saving\n"


def stopping_signals() -> list[signal.Signals]:
    """The signals that stop a run: Ctrl-C, SIGTERM, SIGUSR1 (a warning from Slurm), and SIGHUP (a
    closed terminal), unless `nohup` ignores it."""
    signals = [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signals.append(signal.SIGHUP)
    return signals


class Interruption:
    """Stops a trainer at the first of `stopping_signals`, so that the run can save.

    A second signal of the same kind ends the process at once. torchrun repeats signals, so with it
    the process ends only when it has saved.
    """

    def __init__(self, trainer: "Trainer") -> None:
        self.trainer = trainer
        self.signal: int | None = None
        self.terminals = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]

    @contextmanager
    def watched(self) -> Iterator[None]:
        handlers = dict.fromkeys(stopping_signals(), self._stop)
        handlers[signal.SIGCONT] = self._continue
        before = {
            number: signal.signal(number, handler)
            for number, handler in handlers.items()
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.signal = self.signal or number
        self.trainer.must_stop = True
        if number == signal.SIGHUP:
            self._leave_terminals()
        if started_by_torchrun():
            return
        signal.signal(number, signal.SIG_DFL)
        with suppress(
            OSError
        ):  # stderr may be a pipe to `tee`, which Ctrl-C has ended too
            os.write(2, STOPPED)

    def _leave_terminals(self) -> None:
        """The terminal is closed: writing to it would raise OSError."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for descriptor in self.terminals:
            os.dup2(nowhere, descriptor)
        os.close(nowhere)

    def _continue(self, number: int, frame: FrameType | None) -> None:
        """The process was paused by SIGSTOP or Ctrl-Z, and goes on."""
        self.trainer.clock.skip()
