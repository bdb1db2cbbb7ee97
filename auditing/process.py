"""Runs a target in a process of its own, which may hang, crash, print, or have modules named like Folio's."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from auditing.errors import TargetEnded, TargetError

HOST = Path(__file__).parent / "host.py"


class TargetProcess:
    """A context manager: starts the process, imports the target in it, and ends it together with its children.

    The target's standard output goes to standard error.
    """

    def __init__(self, target: str, service: str, seconds_per_call: float):
        """`target` is `module:name`, `file.py:name`, or a module or file. `service` is the module of `auditing` whose
        `functions(imported)` returns the functions that `call` reaches, such as `auditing.masks.calls`."""
        self.target = target
        self.service = service
        self.seconds_per_call = seconds_per_call

    def __enter__(self) -> Self:
        """Raises TargetError if the target cannot be imported."""
        self.connection, theirs = Pipe()
        # -u: `_end` kills the process, and what it has printed must not be lost in a buffer.
        command = [sys.executable, "-u", "-P", str(HOST), self.service, self.target, str(theirs.fileno())]
        # In a session of its own, Ctrl-C reaches this process only, and `_end` reaches the target's children.
        self.process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=2, start_new_session=True
        )
        theirs.close()
        try:
            self._answer(f"importing {self.target!r}")
        except BaseException:
            self._end()
            raise
        return self

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function of the service with arguments that can be pickled.

        Raises TargetError with one line if the function raises, the process dies, or the time limit expires.
        """
        what = f"{name} of {self.target!r}"
        try:
            self.connection.send((name, arguments))
        except OSError as error:
            raise TargetEnded(f"{what}: {self._death()}") from error
        return self._answer(what)

    def _answer(self, what: str) -> Any:
        if not self.connection.poll(self.seconds_per_call):
            self._end()
            raise TargetEnded(f"{what} took longer than {self.seconds_per_call:g} s")
        try:
            result, line = self.connection.recv()
        except (EOFError, OSError) as error:
            raise TargetEnded(f"{what}: {self._death()}") from error
        if line is not None:
            raise TargetError(line)
        return result

    def _death(self) -> str:
        code = self.process.wait()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"the target's process ended with {how}"

    def _end(self) -> None:
        with suppress(ProcessLookupError):  # it has ended, and so have its children
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.connection.close()

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._end()
