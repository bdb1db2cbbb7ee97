"""Reads a run's files, and checks their content against a schema: which keys it must have, and of
which kind each value is.

A kind is one of:

- a type. `float` accepts every number that can be drawn (`is_number`), `int` every such integer.
- None, for null, and MISSING, if the key may be absent.
- a tuple: any of its kinds. `[kind]`: a list of such values. `{str: kind}`: a dict with such
  values. Another dict: a nested schema.
- a function that returns whether it accepts the value; it never receives MISSING.
"""

import json
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

from runs.errors import InputError
from runs.reading import read_bytes

MISSING = object()


class RunFolderError(InputError):
    """A run's folder cannot be written or read; the message is one line for the user."""


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a value can be drawn: a float that is neither NaN nor infinite, or an integer of at
    most 64 bits."""
    if isinstance(value, float):
        return abs(value) <= 1e300  # sums of several are finite too
    return type(value) is int and abs(value) < 2**63


def is_size(value: Any) -> bool:
    return type(value) is int and value >= 0


def is_character(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 1


STATUSES = ("in progress", "completed", "crashed", "interrupted")
ABOUT = {"name": str, "comment": str, "overridden": [str], "began": float}
STATUS = {"status": lambda value: value in STATUSES, "details": str}
CORPUS = {"name": str, "sha256": str}
VOCABULARIES = {  # by the kind of tokens
    "characters": {"characters": [is_character], "special_tokens": [str]},
    "bytes": {"special_tokens": [str]},
    "subwords": {"tokenizer": dict, "special_tokens": [str]},
    "custom": {"source": dict, "special_tokens": [str]},
}
HARDWARE = {"step": int}  # a row of hardware.jsonl
EVENT = {"event": str, "step": int, "after": (dict, MISSING)}
MEASURED = (float, None)
ROW = {  # of metrics.jsonl
    "step": int,
    "chars": int,
    "seq_len": int,
    "seconds": float,
    "learning_rate": float,
    "loss.valid": float,
    "loss.train": MEASURED,
    "loss.valid_stderr": MEASURED,
    "loss.valid_at_seq_len": MEASURED,
    "accuracy.valid": MEASURED,
}
PLANNED = [dict.fromkeys(("chars", "low", "loss", "high"), float)]
PLAN = {"sha256": str, "curve": PLANNED}  # of the text, and the predicted losses
SHOWN_CONFIG = {
    "training.stages": [{"masking_prob": (float, [float], MISSING)}],
    "masking.masking_prob": float,
}
GROWING = ("metrics.jsonl", "hardware.jsonl", "events.jsonl", "log.txt")
METRICS, USAGE, _, LOG = GROWING
DELIVERED = (METRICS, USAGE, LOG)  # to the dashboard
SIZES = dict.fromkeys(GROWING, (is_size, MISSING))


def read_content(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except OSError as error:
        raise RunFolderError(f"cannot read {path} ({error.strerror})") from error


def read_object(path: Path, schema: Mapping[Any, Any]) -> dict[str, Any]:
    return _parsed(read_content(path), schema, str(path))


def read_rows(
    path: Path, schema: Mapping[str, Any], size: int | None = None
) -> list[dict[str, Any]]:
    """The rows in the first `size` bytes of a file, or in all of it except a line that is still
    being written."""
    content = read_content(path) if path.exists() else b""
    if size and content[size - 1 : size] != b"\n":
        raise RunFolderError(
            f"{path} is damaged: it ends before the last row that the checkpoint counts"
        )

    rows = []
    for line in content[:size].split(b"\n")[:-1]:
        rows.append(_parsed(line, schema, f"line {len(rows) + 1} of {path}"))

    return rows


def _parsed(content: bytes, schema: Mapping[str, Any], source: str) -> dict[str, Any]:
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RunFolderError(f"{source} is damaged: it is not JSON") from error
    return checked(parsed, schema, source)


def checked(
    content: Any,
    schema: Mapping[Any, Any],
    source: str,
    error: type[InputError] = RunFolderError,
) -> dict[str, Any]:
    """Return `content` if it is a dict that matches `schema`, a kind as above; it may have more
    keys.

    Raises `error` with one line that names `source` and the first key that does not match.
    """
    if not isinstance(content, dict):
        raise error(f"{source} is damaged: it holds no keys and values")
    if str in schema:
        schema = dict.fromkeys(content, schema[str])
    for key, kind in schema.items():
        value = content.get(key, MISSING)
        if not matches(value, kind):
            problem = "missing" if value is MISSING else f"wrong ({_shown(value)})"
            raise error(f"{source} is damaged: {key} is {problem}")

    return content


def _shown(value: Any) -> str:
    try:
        return " ".join(reprlib.repr(value).split())
    except ValueError:  # Python refuses to print integers of thousands of digits
        return "a huge number"


def matches(value: Any, kind: Any) -> bool:
    match kind:
        case tuple():
            return any(matches(value, option) for option in kind)
        case list():
            return isinstance(value, list) and all(
                matches(item, kind[0]) for item in value
            )
        case dict() if not isinstance(value, dict):
            return False
        case dict() if str in kind:
            return all(matches(item, kind[str]) for item in value.values())
        case dict():
            return all(matches(value.get(key, MISSING), kind[key]) for key in kind)

    if kind is None or kind is MISSING or value is MISSING:
        return value is kind
    if kind in (float, int):
        return isinstance(value, kind | int) and is_number(value)
    if isinstance(kind, type):
        return isinstance(value, kind)
    return bool(kind(value))
