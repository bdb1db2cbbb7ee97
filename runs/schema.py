"""Checks content read from disk against a schema: which keys it must have, and of which kind each
value is.

A kind is one of:

- a type. `float` accepts every number that can be drawn (`is_number`), `int` every such integer.
- None, for null, and MISSING, if the key may be absent.
- a tuple: any of its kinds. `[kind]`: a list of such values. `{str: kind}`: a dict with such
  values. Another dict: a nested schema.
- a function that returns whether it accepts the value; it never receives MISSING.
"""

import reprlib
from collections.abc import Mapping
from typing import Any, TypeGuard

MISSING = object()


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a value can be drawn: a float that is neither NaN nor infinite, or an integer of at
    most 64 bits."""
    if isinstance(value, float):
        return abs(value) <= 1e300  # sums of several are finite too
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def is_size(value: Any) -> bool:
    return type(value) is int and value >= 0


STATUSES = ("in progress", "completed", "crashed", "interrupted")
ABOUT = {"name": str, "comment": str, "overridden": [str], "began": float}
STATUS = {"status": lambda value: value in STATUSES, "details": str}
CORPUS = {"name": str, "sha256": str}
VOCABULARIES: dict[str, Mapping[str, Any]] = {  # by the kind of tokens
    "characters": {
        "characters": [lambda character: isinstance(character, str) and len(character) == 1],
        "special_tokens": [str],
    },
    "bytes": {"special_tokens": [str]},
    "subwords": {"tokenizer": dict, "special_tokens": [str]},
    "custom": {"source": dict, "special_tokens": [str]},
}
HARDWARE = {"step": int}  # a row of hardware.jsonl
EVENT = {"event": str, "step": int, "after": (dict, MISSING)}
ROW = {  # of metrics.jsonl
    **dict.fromkeys(("step", "chars", "seq_len"), int),
    **dict.fromkeys(("seconds", "learning_rate", "loss.valid"), float),
    **dict.fromkeys(
        ("loss.train", "loss.valid_stderr", "loss.valid_at_seq_len", "accuracy.valid"),
        (float, None),
    ),
}
PLANNED = [dict.fromkeys(("chars", "low", "loss", "high"), float)]  # rows of plan.curve
RATES = {
    "training.stages": [{"masking_prob": (float, [float], MISSING)}],
    "masking.masking_prob": float,
}
SHOWN_CONFIG: dict[str, Any] = RATES | {"plan.curve": (PLANNED, MISSING)}
GROWING = ("metrics.jsonl", "hardware.jsonl", "events.jsonl", "log.txt")
METRICS, USAGE, _, LOG = GROWING
DELIVERED = (METRICS, USAGE, LOG)  # to the dashboard
SIZES = dict.fromkeys(GROWING, (is_size, MISSING))


def checked(
    content: Any, schema: Mapping[str, Any], source: str, error: type[ValueError] = ValueError
) -> dict[str, Any]:
    """Return `content` if it is a dict that matches `schema`; it may have further keys.

    Raises `error` with one line that names `source` and the first key that does not match.
    """
    if not isinstance(content, dict):
        raise error(f"{source} is damaged: it holds no keys and values")
    for key, kind in schema.items():
        value = content.get(key, MISSING)
        if not matches(value, kind):
            found = "missing" if value is MISSING else f"wrong ({_shown(value)})"
            raise error(f"{source} is damaged: {key} is {found}")
    return content


def _shown(value: Any) -> str:
    try:
        return " ".join(reprlib.repr(value).split())
    except ValueError:  # Python refuses to print integers of thousands of digits
        return "a huge number"


def matches(value: Any, kind: Any) -> bool:
    if isinstance(kind, tuple):
        return any(matches(value, option) for option in kind)
    if isinstance(kind, list):
        return isinstance(value, list) and all(matches(item, kind[0]) for item in value)
    if isinstance(kind, dict) and str in kind:
        return isinstance(value, dict) and all(matches(item, kind[str]) for item in value.values())
    if isinstance(kind, dict):
        return isinstance(value, dict) and all(
            matches(value.get(key, MISSING), kind[key]) for key in kind
        )
    if kind is None or kind is MISSING or value is MISSING:
        return value is kind
    if kind in (float, int):
        return isinstance(value, kind | int) and is_number(value)
    return isinstance(value, kind) if isinstance(kind, type) else bool(kind(value))
