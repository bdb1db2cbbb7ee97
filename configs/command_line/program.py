"""The frame of every entry point: wrong input ends in one line on stderr. Works without PyTorch,
for the dashboard."""

import argparse
import errno
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from configs.keys import ConfigError, did_you_mean
from configs.references import line_of
from distributed.launch import local_rank, rank
from runs.terminal import in_one_line

# characters of a line; a message that quotes the input may be much longer
LONGEST = 1_000

if sys.stdout is None:  # closed by `>&-`; labml cannot be imported without it
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115


class OneLineParser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, raised as ConfigError."""

    def error(self, message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ")
        option = re.split("[ =]", unknown)[0]
        raise ConfigError(message + did_you_mean(option, self._option_string_actions))

    def _print_message(self, message: str, file: Any = None) -> None:
        with suppress(BrokenPipeError):  # argparse ignores other errors too
            (file or sys.stdout).write(message)


def run_main(main: Callable[[list[str]], int]) -> NoReturn:
    """Run an entry point on the command line's words and exit with the code that it returns."""
    # as stderr, which escapes what its encoding lacks
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        code = _code_of(main)
    except OSError as error:  # such as a full disk while a run is created
        hint = ": free some space on this disk" if error.errno == errno.ENOSPC else ""
        code = fail(f"{error}{hint}", code=1)
    try:
        sys.stdout.flush()
    except OSError as error:
        # or Python would report it again at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        # `head` stops reading early
        has_reader = not isinstance(error, BrokenPipeError)
        if has_reader and code == 0:
            code = fail(
                f"cannot write the output ({error.strerror}): redirect it", code=1
            )
    sys.exit(code)


def _code_of(main: Callable[[list[str]], int]) -> int:
    try:
        return main(sys.argv[1:])
    except SystemExit as end:  # --help
        return int(end.code or 0)
    except Exception as error:
        line = line_of(error)
        if line is None:
            raise
        return fail(f"stopped: {line}", code=1)
    except (
        KeyboardInterrupt
    ):  # before a program expects it, such as while it imports PyTorch
        return fail("interrupted", code=130)


def fail(error: Exception | str, code: int = 2, *, raised_by_all: bool = False) -> int:
    """Print an error as one line on stderr, without control characters; returns the exit code.

    With torchrun, an error `raised_by_all` processes is printed once per machine, any other with
    the process's number.
    """
    if raised_by_all and local_rank():
        return code
    error = f"process {rank()}: {error}" if rank() and not raised_by_all else error
    line = in_one_line(" ".join(str(error).split()))
    if len(line) > LONGEST:
        line = f"{line[: LONGEST // 2]} ... {line[-LONGEST // 2 :]}"
    print(f"{Path(sys.argv[0]).name}: {line}", file=sys.stderr)
    return code
