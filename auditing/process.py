"""Runs a target in a process of its own, which may hang, crash, print, or have modules named like
Folio's."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path
from threading import Thread
from typing import IO, Any, Self
from uuid import uuid4

import psutil

from auditing.errors import TargetError

HOST = Path(__file__).parent / "host.py"
MARK = "FOLIO_AUDIT"  # in the environment of the target's process, which its children inherit
MOST_PRINTED = 4_000  # bytes of a target that reach standard error


class TargetProcess:
    """A context manager: starts the process, imports the target in it, and ends it together with
    its children.

    The first 4,000 bytes of the target's output go to standard error.
    """

    def __init__(self, target: str, service: str, seconds_per_call: float):
        """`target` is `module:name`, `file.py:name`, or a module or file. `service` is the module
        of `auditing` whose `Service(imported)` has the methods that `call` reaches, such as
        `auditing.masks.calls`."""
        self.target = target
        self.service = service
        self.seconds_per_call = seconds_per_call
        self.mark = str(uuid4())

    def __enter__(self) -> Self:
        """Raises TargetError if the target cannot be imported."""
        self.connection, theirs = Pipe()
        # -u: `_end` kills the process, and what it has printed must not be lost in a buffer. In a
        # session of its own, Ctrl-C reaches this process only, and `_end` reaches the target's
        # children.
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-u",
                "-P",
                str(HOST),
                self.service,
                self.target,
                str(theirs.fileno()),
            ],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | {MARK: self.mark},
        )
        theirs.close()
        self.printed = Thread(target=forward, args=(self.process.stdout,), daemon=True)
        self.printed.start()
        try:
            self._answer(f"importing {self.target!r}")
        except BaseException:
            self._end()
            raise
        return self

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a method of the service with arguments that can be pickled.

        Raises TargetError with one line if it raises, the process dies, or the time limit expires.
        """
        return self._answer(f"{name} of {self.target!r}", (name, arguments))

    def _answer(self, what: str, question: tuple[str, tuple[Any, ...]] | None = None) -> Any:
        try:
            if question is not None:
                self.connection.send(question)
            is_in_time = self.connection.poll(self.seconds_per_call)
            answer = self.connection.recv() if is_in_time else None
        except (EOFError, OSError) as error:
            raise TargetError(f"{what}: {self._death()}") from error
        if not is_in_time:
            self._end()
            raise TargetError(f"{what} took longer than {self.seconds_per_call:g} s")
        if isinstance(answer, TargetError):
            raise answer
        return answer

    def _death(self) -> str:
        code = self.process.wait()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"the target's process ended with {how}"

    def _end(self) -> None:
        family = self._family()  # before their parent ends
        with suppress(ProcessLookupError):  # it has ended
            os.killpg(self.process.pid, signal.SIGKILL)
        for process in family:  # some have a session of their own
            with suppress(psutil.Error):
                process.kill()
        self.process.wait()
        self.connection.close()
        self.printed.join(timeout=1.0)

    def _family(self) -> list[psutil.Process]:
        """The processes with the mark, and all descendants; on Linux also those whose parent has
        ended."""
        every = psutil.process_iter(["environ"])
        marked = [
            process for process in every if (process.info["environ"] or {}).get(MARK) == self.mark
        ]
        with suppress(psutil.Error):  # the process has ended
            return [*marked, *psutil.Process(self.process.pid).children(recursive=True)]
        return marked

    def __exit__(self, *error: object) -> None:
        self._end()


def forward(stream: IO[bytes]) -> None:
    """Copy what a target prints to standard error, and only count what is too much."""
    n_printed = 0
    while content := os.read(stream.fileno(), 65_536):
        shown = content[: max(0, MOST_PRINTED - n_printed)]
        n_printed += len(content)
        print(shown.decode(errors="replace"), end="", file=sys.stderr, flush=True)
    if n_printed > MOST_PRINTED:
        print(
            f"\n... the target printed {n_printed - MOST_PRINTED:,} bytes more",
            file=sys.stderr,
            flush=True,
        )
