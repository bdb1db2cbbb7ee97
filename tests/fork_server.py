"""Starts programs of this repository by forking a process that has imported their modules.

A new interpreter needs seconds to import PyTorch; a fork needs milliseconds. The program runs as
`__main__` with its own arguments, environment and standard streams. After its threads and exit
handlers it ends at once: Python would take half a second to destroy what was imported. Variables
that Python reads at its start, or modules when they are imported (PYTHONHASHSEED, OMP_WAIT_POLICY),
keep the values of the fork server.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import pty
import runpy
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import torch

from configs.command_line.command import parse
from runs.curves import save_curves
from runs.files import ROOT
from training.callbacks import reference_losses

# Programs import some modules only when they use them.
PRELOADED = (
    "experiment",
    "evaluate",
    "dashboard",
    "board.server",
    "configs.callbacks",
    "data.masking.strategies",
    "git",
    "matplotlib.backends.backend_agg",
    "runs.hardware",
    "torch._dynamo",
    "trained.fill",
    "trained.initial_weights",
    "training.resume",
)


class ForkServer:
    """The process that forks. One for all tests of a pytest process."""

    def __init__(self, home):
        """`home` is the home folder while the modules are imported, which may write there."""
        self._requests, theirs = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_SEQPACKET
        )
        own = {"HOME": str(home), "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
        with theirs:
            number = theirs.fileno()
            command = [sys.executable, "-m", "tests.fork_server", str(number)]
            environment = os.environ | own
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=environment, pass_fds=[number]
            )

    def start(
        self,
        arguments,
        environment=None,
        *,
        merged=False,
        terminal=False,
        draws=False,
        standard_input=os.devnull,
    ):
        """Start `python *arguments` with further variables of the environment.

        `merged` sends the errors to the standard output, which may be a `terminal`. The plot of a
        run's curves is empty unless the program `draws`.
        """
        out, out_write = pty.openpty() if terminal else os.pipe()
        if terminal:
            termios.tcsetwinsize(out, (24, 80))
        err, err_write = os.pipe()
        status, status_write = os.pipe()
        fds = [out_write, out_write if merged else err_write, status_write]
        request = {
            "arguments": arguments,
            "environment": os.environ | (environment or {}),
            "draws": draws,
            "input": standard_input,
        }
        socket.send_fds(self._requests, [json.dumps(request).encode()], fds)

        for fd in (out_write, err_write, status_write):
            os.close(fd)

        return Program(arguments, out, err, status)

    def close(self):
        self._requests.close()
        self._process.wait(10)


class Program:
    """A started program, used like subprocess.Popen."""

    def __init__(self, arguments, out, err, status):
        self.arguments = arguments
        files = [open(fd, encoding="utf-8") for fd in (out, err, status)]  # noqa: SIM115
        self.stdout, self.stderr, self._status = files
        self.pid = int(self._status.readline())
        self.returncode = None
        os.set_blocking(status, False)

    def poll(self):
        if self.returncode is None and (line := self._status.readline()):
            self.returncode = int(line)
        return self.returncode

    def wait(self, timeout):
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self.arguments, timeout)
            time.sleep(0.01)
        return self.returncode

    def output(self, code=0):
        """Wait for the end, with an exit code. Returns the standard output."""
        ended = self.wait(120)
        output = self.stdout.read()
        assert ended == code, output + self.stderr.read()
        return output

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def serve(requests):
    """Fork for each request. Returns in the fork, to run the program; ends when the requests do."""
    for name in PRELOADED:
        importlib.import_module(name)

    parse(["device=cpu"])  # keeps the text of --help
    # the first figure of a process takes long
    save_curves(Path.home() / "curves.png", [], {"unigram": 3.3}, "fonts")
    os.fsync = lambda descriptor: None  # as in tests.conftest
    gc.freeze()  # programs end sooner if they do not collect what was imported here
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors leave no zombies

    while True:
        message, fds, _, _ = socket.recv_fds(requests, 2**20, 3)
        if not message:
            sys.exit()
        if os.fork() == 0:
            requests.close()
            return supervise(json.loads(message), *fds)
        for fd in fds:
            os.close(fd)


def supervise(request, out, err, status):
    """Fork again: the parent reports the program's process id and its exit code, the child becomes
    the program."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid:
        os.close(out)
        os.close(err)
        os.write(status, f"{pid}\n".encode())
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with contextlib.suppress(BrokenPipeError):
            os.write(status, f"{code}\n".encode())
        os._exit(0)

    source = os.open(request["input"], os.O_RDONLY)
    for number, fd in enumerate((source, out, err)):
        os.dup2(fd, number)

    for fd in {source, out, err, status}:
        os.close(fd)

    os.environ.clear()
    os.environ.update(request["environment"])
    # New objects, because the old ones remember which kind of file they wrote to.
    encoding = os.environ.get("PYTHONIOENCODING", "utf-8")
    sys.stdout = sys.__stdout__ = open(1, "w", encoding=encoding, closefd=False)  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(  # noqa: SIM115
        2, "w", 1, encoding, "backslashreplace", closefd=False
    )
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 1)))

    if not request["draws"]:
        reference_losses.save_curves = lambda path, *_: path.touch()
    sys.argv = request["arguments"]


def run(path):
    """Run a program as `__main__` and end this process."""
    code = 0
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        if not isinstance(end.code, int):  # Python prints it
            raise
        code = end.code

    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
    run(sys.argv[0])
