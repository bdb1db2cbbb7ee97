"""The knobs: settings that a user may change while a run trains."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from runs.errors import InputError

FACTORS = (0.01, 10.0)  # the lowest and the highest
# below, a window may have a single masked position, for which PyTorch compiles again
RATES = (0.05, 1.0)


@dataclass(frozen=True)
class Knobs:
    """The values of all knobs. The defaults change nothing."""

    learning_rate_factor: float = 1.0  # multiplies the scheduled learning rate
    # replaces the masking rate of the stages; None keeps it
    masking_prob: float | None = None

    def __str__(self) -> str:
        rate = "as scheduled" if self.masking_prob is None else f"{self.masking_prob:g}"
        return (
            f"learning_rate_factor {self.learning_rate_factor:g}, masking_prob {rate}"
        )


def knobs_of(values: Mapping[str, Any]) -> Knobs:
    """Check `values`, which come from JSON or from the command line. Raises InputError."""
    names = [field.name for field in fields(Knobs)]
    for name in values:
        if name not in names:
            raise InputError(f"unknown knob {name!r}: choose {' or '.join(names)}")

    factor = _number(
        "learning_rate_factor", values.get("learning_rate_factor", 1.0), *FACTORS
    )
    rate = values.get("masking_prob")

    if rate is None or str(rate).lower() == "none":
        return Knobs(factor)
    return Knobs(factor, _number("masking_prob", rate, *RATES))


def _number(name: str, value: Any, low: float, high: float) -> float:
    word = str(value)
    try:
        # Python reads 1_0, and ١ as 1; neither is wanted, nor true
        number = float(word if word.isascii() and "_" not in word else "")
    except ValueError:
        number = float("nan")

    if not low <= number <= high:  # nan is not
        raise InputError(
            f"{name}={word[:40]}: it must be a number from {low:g} to {high:g}"
        )
    return number
