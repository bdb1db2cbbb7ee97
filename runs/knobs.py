"""What can be changed by hand while a run trains, and within which bounds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

LOWEST_FACTOR, HIGHEST_FACTOR = 0.01, 10.0


class KnobError(ValueError):
    """A knob that does not exist, or a value out of its range; the message is one line for the user."""


@dataclass(frozen=True)
class Knobs:
    """How the knobs stand. As they are here, nothing was changed."""

    learning_rate_factor: float = 1.0  # times what the schedule says
    masking_prob: float | None = None  # in place of the stage's own; None: the stage's own

    def __str__(self) -> str:
        rate = "the stage's own" if self.masking_prob is None else f"{self.masking_prob:g}"
        return f"learning_rate_factor {self.learning_rate_factor:g}, masking_prob {rate}"

    def as_dict(self) -> dict[str, float | None]:
        return asdict(self)


def knobs_of(values: Mapping[str, Any], rates: Sequence[float]) -> Knobs:
    """The knobs as `values` has them, from JSON or a command line's texts; what it does not name stays unturned.

    `rates` are the masking rates of the run's stages: only these shapes are compiled. Raises KnobError.
    """
    if not isinstance(values, Mapping):
        raise KnobError("knobs are names with values")
    unknown = set(values) - {"learning_rate_factor", "masking_prob"}
    if unknown:
        raise KnobError(f"there is no knob {sorted(unknown)[0]!r}: turn learning_rate_factor or masking_prob")
    factor = _number("learning_rate_factor", values.get("learning_rate_factor", 1.0))
    if not LOWEST_FACTOR <= factor <= HIGHEST_FACTOR:
        raise KnobError(
            f"learning_rate_factor={factor:g} must be at least {LOWEST_FACTOR:g} and at most {HIGHEST_FACTOR:g}"
        )
    wanted = values.get("masking_prob")
    if wanted is None or (isinstance(wanted, str) and wanted.lower() == "none"):
        return Knobs(factor)
    rate = _number("masking_prob", wanted)
    known = sorted(set(rates))
    if rate not in known:
        listed = ", ".join(f"{rate:g}" for rate in known)
        raise KnobError(f"masking_prob={rate:g} is none of the rates of the stages: choose {listed}, or none")
    return Knobs(factor, rate)


def _number(name: str, value: Any) -> float:
    try:
        number = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not math.isfinite(number):
        raise KnobError(f"{name}={str(value)[:40]} is not a number")
    return number
