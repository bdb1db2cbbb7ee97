"""Passes the rows of a run to other experiment trackers."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from select import select
from typing import Any

from runs.files import ROOT, reporting_os_errors, to_json
from runs.run_folder import RunFolder
from training.callbacks.callback import Callback, Row, Weights
from training.loop import Trainer
from training.trackers import READY

SECONDS_TO_START = 30.0  # after that, its rows wait for it
SECONDS_TO_END = 10.0
ENDED = "it has ended"
LATE = "it does not answer"


class OtherTracker(Callback):
    """Passes rows to a process that writes them with the library of one tracker.

    Training waits for it before the first step and after the last one only. A library that is
    missing, fails, hangs or is killed costs a line.
    """

    def __init__(self, run: RunFolder, tracker: str):
        self.run = run
        self.tracker = tracker
        self.log = run.path / f"{tracker}.log"  # of the library
        self.process: Any = None  # None after a failure

    def begin(self, trainer: Trainer) -> None:
        words = ["-m", "training.trackers", self.tracker, str(self.run.path)]
        what = f"{self.log}, so not to {self.tracker}"
        with reporting_os_errors(trainer.report, what), open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *words],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the run
            )
        answer = self._answer(SECONDS_TO_START) if self.process else READY
        if answer not in (READY, LATE):
            self._leave(trainer, answer)

    def evaluated(self, trainer: Trainer, row: Row, best: Weights | None) -> None:
        if self.process is None:
            return
        line = f"{to_json(row)}\n".encode()
        rows = self.process.stdin.fileno()
        os.set_blocking(rows, False)  # a full pipe must not stop the run
        try:
            if os.write(rows, line) < len(line):
                raise BlockingIOError
        except BrokenPipeError:
            self._leave(trainer, self._last_answer())
        except BlockingIOError:
            self._leave(trainer, "it takes no rows")

    def end(self, trainer: Trainer) -> None:
        if self.process is None:
            return
        self.process.stdin.close()
        answer = self._last_answer()
        with suppress(subprocess.TimeoutExpired):
            if answer == ENDED and self.process.wait(SECONDS_TO_END) == 0:
                return
        self._leave(trainer, answer)

    def _last_answer(self) -> str:
        answer = self._answer(SECONDS_TO_END)
        # of a process that was slow to start
        return self._answer(SECONDS_TO_END) if answer == READY else answer

    def _answer(self, seconds: float) -> str:
        """The last line that the process has written, or else why it has written none."""
        answers = self.process.stdout
        if not select([answers], [], [], seconds)[0]:
            return LATE
        text = os.read(answers.fileno(), 4096).decode().strip()
        return text.splitlines()[-1] if text else ENDED

    def _leave(self, trainer: Trainer, why: str) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process = None
        trainer.report(
            f"tracking.also: {self.tracker}: {why}; the run goes on without it (see {self.log})"
        )
