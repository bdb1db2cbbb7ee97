"""The frame of every entry point: wrong input ends in one line on stderr. Works without PyTorch, for the dashboard."""

import argparse
import errno
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from configs.keys import ConfigError
from distributed.launch import local_rank, rank

LONGEST = 1_000  # characters of a line; a message that quotes the input may be much longer


class OneLineParser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, raised as ConfigError."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def run_main(main: Callable[[list[str]], int]) -> NoReturn:
    """Run an entry point on the command line's words and exit with the code that it returns."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # stderr escapes what its encoding lacks, stdout would raise
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = main(sys.argv[1:])
    except OSError as error:  # such as a full disk while a run is created
        hint = ": free some space, or set logs to another folder" if error.errno == errno.ENOSPC else ""
        code = fail(f"{error}{hint}", code=1)
    sys.exit(code)


def fail(error: Exception | str, code: int = 2, *, in_all: bool = False) -> int:
    """Print an error as one line on stderr, without control characters; returns the exit code.

    With torchrun, an error that is `in_all` processes is printed once per machine, any other with the process's number.
    """
    if in_all and local_rank():
        return code
    error = f"process {rank()}: {error}" if rank() and not in_all else error
    line = " ".join(str(error).split())
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    if len(line) > LONGEST:
        line = f"{line[: LONGEST // 2]} ... {line[-LONGEST // 2 :]}"
    print(f"{Path(sys.argv[0]).name}: {line}", file=sys.stderr)
    return code
