"""The points of a training at which `checkpoint.keep_at` keeps the weights. Works without PyTorch."""

import re
from typing import Any, NamedTuple

UNITS = ("tokens", "words", "steps")
FACTORS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9}
MARK = re.compile(rf"(\d+(?:\.\d+)?)([KMB]?)(?: ({'|'.join(UNITS)}))?")


class Mark(NamedTuple):
    """A point of a training, such as 5M tokens or 1000 steps."""

    name: str  # of the checkpoint
    amount: float
    unit: str


def mark_of(value: Any) -> Mark:
    """The mark of an entry of `checkpoint.keep_at`. Raises ValueError if it is none."""
    match = MARK.fullmatch(str(value))
    if match is None or not float(match[1]):
        raise ValueError(
            f"{value} is not of the form 5M, 1000 steps or 2M words: a number, K, M or B after it"
            " if you like, and tokens (the default), words or steps"
        )
    number, factor, unit = match.groups()
    amount = float(number) * FACTORS[factor]
    return Mark(str(value).replace(" ", "-"), amount, unit or "tokens")
