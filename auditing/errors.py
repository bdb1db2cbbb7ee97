"""The errors of a target, and how a line describes the values that went in and came out."""

import importlib
import signal
from collections.abc import Mapping
from pathlib import Path
from textwrap import shorten
from traceback import extract_tb
from typing import Any

PACKAGE = Path(__file__).parent
LONGEST_TEXT = 200  # characters of a quoted message


class TargetError(Exception):
    """The target cannot be audited. The message is one line: the call, its shapes, and what came
    back."""


class TargetEndedError(TargetError):
    """The target ended the process that called it, so no other way to call it is tried."""


def exit_status(code: int) -> str:
    """How a process ended, by its exit code, which is negative for a signal."""
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def describe(value: Any) -> str:
    """The type and shape of a value in a few words: `int64 [8, 128]`, `{input_ids: int64 [8,
    128]}`."""
    if isinstance(getattr(value, "shape", None), tuple) and hasattr(value, "dtype"):
        dtype = str(value.dtype).removeprefix("torch.")
        device = getattr(value, "device", None)
        where = f" on {device}" if device is not None and str(device) != "cpu" else ""
        return f"{dtype} {list(value.shape)}{where}"
    if isinstance(value, Mapping):
        return (
            "{"
            + ", ".join(f"{key}: {describe(part)}" for key, part in value.items())
            + "}"
        )
    if (
        isinstance(value, list | tuple)
        and value
        and not isinstance(value[0], int | float | str)
    ):
        parts = [describe(part) for part in value[:3]]
        if len(value) > 3 or (len(value) > 1 and isinstance(value, list)):
            return f"{type(value).__name__} of {len(value)}: {parts[0]}, ..."
        return f"({', '.join(parts)})"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__} of {len(value)}"
    text = (
        repr(value)
        if isinstance(value, int | float | str | bool | None)
        else type(value).__name__
    )
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]} ..."


def raised(error: BaseException) -> str:
    """An exception in one line with the place where it was raised: `ValueError: bad rate
    (masker.py, line 7)`."""
    text = shorten(str(error), LONGEST_TEXT, placeholder=" ...")
    name = type(error).__name__
    places = [
        each for each in extract_tb(error.__traceback__) if is_of_target(each.filename)
    ]
    places = [each for each in places if "site-packages" not in each.filename] or places
    place = (
        f" ({Path(places[-1].filename).name}, line {places[-1].lineno})"
        if places
        else ""
    )
    return f"{name}: {text}{place}" if text else f"{name}{place}"


def is_of_target(filename: str) -> bool:
    """Whether a frame of a traceback is neither of the audit nor of Python's import system."""
    path = Path(filename)
    is_of_audit = path.is_relative_to(PACKAGE) and not path.is_relative_to(
        PACKAGE / "tests"
    )
    is_of_import = path.is_relative_to(Path(importlib.__file__).parent)
    return not (is_of_audit or is_of_import or filename.startswith("<frozen"))
