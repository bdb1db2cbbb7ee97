"""The scripts that use runs: their arguments RUN and --logs, ranges of numbers, and errors. Works
without PyTorch."""

import math
from argparse import ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from configs.command_line.program import OneLineParser, fail
from configs.memory import is_out_of_memory, what_to_lower
from runs.errors import InputError, StoppedError
from runs.files import ROOT


def logs_parser(description: str | None) -> OneLineParser:
    """A parser with --logs; --help shows the description as it is written."""
    parser = OneLineParser(
        description=description, formatter_class=RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--logs",
        type=Path,
        default=ROOT / "logs",
        help="folder of the runs (default: %(default)s)",
    )
    return parser


def run_parser(
    description: str | None, name: str = "run", **options: Any
) -> OneLineParser:
    """A parser with --logs and RUN, which becomes the option `name`."""
    parser = logs_parser(description)
    parser.add_argument(
        name,
        metavar="RUN",
        help="a folder, a uuid or its first characters, a name, or last; RUN@5M: at a checkpoint that"
        " checkpoint.keep_at kept",
        **options,
    )
    return parser


def number(
    kind: type, low: float, high: float = math.inf, below: float = math.inf
) -> Callable[[str], Any]:
    """The `type` of an argument: an int or a float from `low` to `high`, or from `low` to less than
    `below`."""

    def parsed(word: str) -> Any:
        value = kind(word)
        if not low <= value <= high or not value < below:
            upper = (
                f" and below {below:g}"
                if high == math.inf
                else f" and at most {high:,}"
            )
            raise ArgumentTypeError(
                f"{value} is out of range: it must be at least {low:g}{upper}"
            )
        return value

    parsed.__name__ = kind.__name__  # argparse names it if the word is not a number
    return parsed


def run_script(
    parser: OneLineParser,
    arguments: list[str],
    command: Callable[[Namespace], int | None],
    requirements: str = "requirements.txt",
) -> int:
    """Run `command` on the parsed options; returns its exit code. Wrong input ends in one line and
    exit code 2.

    `requirements` is the file that lists the packages of the script.
    """
    try:
        # options before or after RUN
        return command(parser.parse_intermixed_args(arguments)) or 0
    except InputError as error:
        return fail(error)
    except StoppedError as error:
        return fail(f"stopped: {error}", code=1)
    except ModuleNotFoundError as error:
        return fail(f"{error.name} is not installed: pip install -r {requirements}")
    except BrokenPipeError:  # the reader of the output has gone, as `head` does
        return 0
    except KeyboardInterrupt:
        return 130


def exit_code(error: BaseException, values: dict[str, Any]) -> int:
    """Report an error that ended a training with these keys, and return the exit code. Raises
    errors of the program."""
    if isinstance(error, InputError):
        return fail(error, raised_by_all=error.raised_by_all)
    if isinstance(error, StoppedError):
        return fail(f"stopped: {error}", code=1, raised_by_all=error.raised_by_all)
    if isinstance(error, KeyboardInterrupt):  # during training it saves first
        reason = (
            "interrupted before training; what was prepared of a large text is kept"
        )
        return fail(reason, code=130, raised_by_all=True)
    if is_out_of_memory(error):
        return fail(f"stopped: {what_to_lower(values)}", code=1)
    raise error
