"""The keys of the config tree: the annotation of a key declares its type, range and resume rule.

A labml config item carries no documentation and checks no value, so both are in its annotation:

    masking_prob: Annotated[float, Key("share of the characters that are selected", above=0, high=1)] = 0.15

This line is all that a new key needs. `keys_of` walks the config classes and finds every such item
by its dotted name.
"""

import math
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from labml.configs import BaseConfigs

from configs.branch import is_reference
from configs.command_line.strict_yaml import parse_yaml
from runs.errors import InputError

LONGEST_VALUE = 60  # characters of a value that an error message repeats


class ConfigError(InputError):
    """A wrong key or value; the message is one line for the user."""


@dataclass(frozen=True)
class Key:
    """The facts about a config item that users may set. A number has a range: `low` or `above`, and
    `high`."""

    text: str  # one line of --help, with the unit
    above: float = -math.inf
    low: float = -math.inf
    high: float = math.inf
    choices: tuple[str, ...] = ()
    resume: bool = False  # whether a resumed run may change it
    compared: bool = True  # False: runs that differ in this key only are repeats of each other
    former: str = ""  # the dotted name that this key had before
    reference: bool = False  # whether its value may be the user's own code, `file.py:name`


@dataclass(frozen=True)
class Setting:
    """A key with its place in the tree."""

    name: str  # dotted, such as model.d_model
    kind: type  # int, float, bool, str or list
    optional: bool  # whether it may be None
    default: Any
    key: Key

    def parse(self, value: Any) -> Any:
        """Convert a value from YAML or from the text of a command line to the key's type. Raises
        ConfigError."""
        if self.optional and str(value).lower() in ("none", "null", ""):
            return None
        if value == "" and self.kind is str and self.default and not self.key.choices:
            raise ConfigError(f"{self.name} is empty ({self.key.text})")
        try:
            parsed, hint = _parsed(value, self.kind), ""
        except ValueError as error:  # not YAML
            parsed, hint = None, f" ({error})"
        if parsed is not None and self._is_allowed(parsed):
            return parsed
        if self.kind is list and isinstance(value, str) and not value.endswith("]"):
            hint = ' (quote it for the shell: "key=[{a: 1}]")'
        if near := get_close_matches(shortened(value), self.key.choices, 1):
            hint = f" (did you mean {near[0]}?)"
        raise ConfigError(f"{self.name}={shortened(value)}{hint}: it must be {self.allowed}")

    def _is_allowed(self, value: Any) -> bool:
        key = self.key
        if key.reference and is_reference(value):
            return True
        if isinstance(value, int | float):
            return key.above < value and key.low <= value <= key.high
        return not key.choices or value in key.choices

    @property
    def allowed(self) -> str:
        """The choices, or the type with its range, in words."""
        key, words = self.key, _TYPE_NAMES[self.kind]
        if key.choices:
            own = ", or file.py:name" if key.reference else ""
            return "one of " + ", ".join(key.choices) + own
        if math.isfinite(key.high):
            words += (
                f" above {key.above:,} and at most"
                if math.isfinite(key.above)
                else f" from {key.low:,} to"
            )
            words += f" {key.high:,}"
        return words + (", or null" if self.optional else "")


def keys_of(configs: type[BaseConfigs]) -> dict[str, Setting]:
    """Every key of a config class and of the config classes nested in it, by dotted name, in order."""
    return {setting.name: setting for setting in _walk(configs, "")}


def _walk(configs: type[BaseConfigs], prefix: str) -> Iterator[Setting]:
    for name, annotation in configs.__annotations__.items():
        if isinstance(annotation, type) and issubclass(annotation, BaseConfigs):
            yield from _walk(annotation, f"{prefix}{name}.")
        elif typing.get_origin(annotation) is typing.Annotated:
            kind, key = typing.get_args(annotation)[:2]
            choices = tuple(option_names(configs, name))  # the functions registered with @option
            choices = choices or (
                typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ()
            )
            if choices:
                kind, key = str, replace(key, choices=choices)
            kinds = typing.get_args(kind) or (kind,)  # (int, NoneType) for int | None
            yield Setting(
                prefix + name, kinds[0], len(kinds) > 1, getattr(configs, name).value, key
            )


def option_names(configs: type[BaseConfigs], item: str) -> dict[str, None]:
    """The names of the functions registered with `@option` for an item, in order."""
    return dict.fromkeys(
        option.option_name for option in configs.__dict__.get("_calculators", {}).get(item, [])
    )


def unknown_key(name: str, settings: Mapping[str, Setting]) -> ConfigError:
    """The error for a key that does not exist, with its present name or the nearest key, if there
    is one."""
    present = {each.key.former or each.name: each.name for each in settings.values()} | {
        key: key for key in settings
    }
    # A common slip is to leave out the group, as in d_model=256: compare the last parts too.
    by_last_part = {key.rpartition(".")[2]: key for key in present}
    near = get_close_matches(name, present, 1) or get_close_matches(
        name.rpartition(".")[2], by_last_part, 1
    )
    hint = (
        f"did you mean {present[by_last_part.get(near[0], near[0])]}?"
        if near
        else "--help lists every key"
    )
    return ConfigError(f"unknown key {shortened(name)!r}: {hint}")


def shortened(value: Any) -> str:
    text = str(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 3] + "..."


def _parsed(value: Any, kind: type) -> Any:
    """A value as `kind`, or None if it is not of this type. Raises ValueError for a list that is
    not YAML."""
    if kind is bool:
        return {"true": True, "false": False}.get(str(value).lower())
    if kind is str:
        return value if isinstance(value, str) and is_text(value) else None
    if kind is list:
        value = parse_yaml(value) if isinstance(value, str) else value
        return value if isinstance(value, list) else None
    if kind is int and type(value) is int:
        return value
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if kind is int:  # 1e6 is an integer too
        return int(number) if number.is_integer() else None
    return number if math.isfinite(number) else None


def is_text(text: str) -> bool:
    """Whether a string can be a path and can be written as UTF-8."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


_TYPE_NAMES = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "UTF-8 text",
    list: "a list in YAML",
}
