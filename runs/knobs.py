"""The knobs: settings that a user may change while a run trains."""

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from runs.errors import InputError

LOWEST_FACTOR, HIGHEST_FACTOR = 0.01, 10.0


class KnobError(InputError):
    """An unknown knob or a value out of range. The message is one line for the user."""


@dataclass(frozen=True)
class Knobs:
    """The values of all knobs. The defaults change nothing."""

    learning_rate_factor: float = 1.0  # multiplies the scheduled learning rate
    masking_prob: float | None = None  # replaces the masking rate of the stages; None keeps it

    def __str__(self) -> str:
        rate = "as scheduled" if self.masking_prob is None else f"{self.masking_prob:g}"
        return f"learning_rate_factor {self.learning_rate_factor:g}, masking_prob {rate}"

    def as_dict(self) -> dict[str, float | None]:
        return asdict(self)


def knobs_of(values: Mapping[str, Any], rates: Sequence[float]) -> Knobs:
    """Check `values`, which come from JSON or from the command line. `rates` are those of the run's stages: only for
    them are the numbers of masked positions compiled. Raises KnobError."""
    unknown = set(values) - {"learning_rate_factor", "masking_prob"}
    if unknown:
        raise KnobError(f"unknown knob {sorted(unknown)[0]!r}: choose learning_rate_factor or masking_prob")
    factor = _number("learning_rate_factor", values.get("learning_rate_factor", 1.0))
    if not LOWEST_FACTOR <= factor <= HIGHEST_FACTOR:
        raise KnobError(f"learning_rate_factor={factor:g} is not within {LOWEST_FACTOR:g} to {HIGHEST_FACTOR:g}")
    wanted = values.get("masking_prob")
    if wanted is None or str(wanted).lower() == "none":
        return Knobs(factor)
    rate = _number("masking_prob", wanted)
    if rate not in rates:
        listed = ", ".join(f"{known:g}" for known in sorted(set(rates)))
        raise KnobError(f"masking_prob={rate:g} is not a masking rate of this run's stages: choose {listed}, or none")
    return Knobs(factor, rate)


def _number(name: str, value: Any) -> float:
    if value == "":
        raise KnobError(f"{name} is empty: give a number, such as {name}=0.5")
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        word = str(value)
        is_number = not isinstance(value, bool) and "_" not in word and word.isascii()  # Python reads 1_0, and ١ as 1
        if is_number and math.isfinite(number := float(value)):
            return number
    raise KnobError(f"{name}={str(value)[:40]} is not a number")
