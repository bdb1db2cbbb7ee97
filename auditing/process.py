"""Runs a target in a process of its own, which may hang, crash, print, or have modules named like
Folio's."""

import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import IO, Any, Self

from auditing.errors import TargetError, exit_status

HOST = Path(__file__).parent / "host.py"
# in the environment of the target's process and of its children
FOLDER_VARIABLE = "FOLIO_AUDIT"
MOST_PRINTED = 4_000  # bytes of a target that reach standard error


class TargetProcess:
    """A context manager: starts the process, imports the target in it, and ends it together with
    its children.

    Questions and answers are files of a temporary folder: whatever the target writes into its
    descriptors, or forks, cannot damage them. The first 4,000 bytes of the target's output go to
    standard error.
    """

    def __init__(self, target: str, service: str, seconds_per_call: float):
        """`target` is `module:name`, `file.py:name`, or a module or file.

        `service` is the module of `auditing` whose `Service(imported)` has the methods that `call`
        reaches, such as `auditing.masks.calls`.
        """
        self.target = target
        self.service = service
        self.seconds_per_call = seconds_per_call

    def __enter__(self) -> Self:
        """Raises TargetError if the target cannot be imported."""
        self.folder = Path(tempfile.mkdtemp(prefix="folio-audit-"))
        self.n_answers = 0
        places = [str(self.folder), str(os.getpid())]
        # -u: `_end` kills the process, and its output must not be lost in a buffer. In a session of
        # its own, Ctrl-C reaches this process only, and `_end` reaches the target's children.
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-P", str(HOST), self.service, self.target, *places],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | {FOLDER_VARIABLE: str(self.folder)},
        )
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
        write(self.folder / f"question-{self.n_answers}", (name, arguments))
        return self._answer(f"{name} of {self.target!r}")

    def _answer(self, what: str) -> Any:
        """The next answer; `what` is what the process does until it comes."""
        path = self.folder / f"answer-{self.n_answers}"
        began = time.monotonic()

        while not path.exists():
            if self.process.poll() is not None:
                status = exit_status(self.process.returncode)
                raise TargetError(f"{what}: the target's process ended with {status}")
            elapsed = time.monotonic() - began
            if elapsed > self.seconds_per_call:
                self._end()
                raise TargetError(
                    f"{what} took longer than {self.seconds_per_call:g} s"
                )
            time.sleep(pause(elapsed))

        self.n_answers += 1
        answer = read(path)
        if isinstance(answer, TargetError):
            raise answer
        return answer

    def _end(self) -> None:
        members = family(self.process.pid, str(self.folder))  # before their parent ends
        with suppress(ProcessLookupError):  # it has ended
            os.killpg(self.process.pid, signal.SIGKILL)
        for pid in members:  # some have a session of their own
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.printed.join(timeout=1.0)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __exit__(self, *error: object) -> None:
        self._end()


def pause(elapsed: float) -> float:
    """Seconds to sleep before one looks again for a file that was not there for `elapsed` seconds.

    A wait becomes longer by a twentieth at most.
    """
    return min(0.05, max(0.0002, elapsed / 20))


def write(path: Path, value: Any) -> None:
    """Write a value to a file that appears as a whole."""
    partial = path.with_suffix(".partial")
    partial.write_bytes(pickle.dumps(value))
    partial.replace(path)


def read(path: Path) -> Any:
    """The value in a file, which is deleted."""
    value = pickle.loads(path.read_bytes())
    path.unlink()
    return value


def family(pid: int, mark: str) -> set[int]:
    """The processes whose environment contains `mark`, and all descendants of a process.

    Only Linux lists them in /proc. Elsewhere the children of the process's own session end with it.
    """
    parents = {}
    members = {pid}

    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or belongs to another user
            number = int(folder.name)
            parents[number] = int(
                (folder / "stat").read_text().rpartition(")")[2].split()[1]
            )
            if mark.encode() in (folder / "environ").read_bytes():
                members.add(number)

    while (
        children := {each for each, parent in parents.items() if parent in members}
        - members
    ):
        members |= children
    return members


def forward(stream: IO[bytes]) -> None:
    """Copy what a target prints to standard error, and only count what is too much."""
    n_printed = 0
    while content := os.read(stream.fileno(), 65_536):
        shown = content[: max(0, MOST_PRINTED - n_printed)]
        n_printed += len(content)
        print(shown.decode(errors="replace"), end="", file=sys.stderr, flush=True)
    if n_printed > MOST_PRINTED:
        line = f"\n... the target printed {n_printed - MOST_PRINTED:,} bytes more"
        print(line, file=sys.stderr, flush=True)
