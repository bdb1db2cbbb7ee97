"""Checks that the rows {until: ..., ...} of stages and mixtures share."""

from typing import Any

from configs.keys import ConfigError


def is_number(value: Any) -> bool:
    """Whether a YAML value is a number; true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_untils(where: str, untils: list[float]) -> None:
    """Raise ConfigError unless the rows' ends rise from above 0 to 1."""
    before = 0.0
    for number, until in enumerate(untils, start=1):
        if until <= before:
            raise ConfigError(f"{where}, row {number}: until={until} must be above {before}, the end of the row before")
        before = until
    if before != 1:
        raise ConfigError(f"{where}: the last row must have until=1.0, not {before}")
