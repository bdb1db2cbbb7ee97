"""The keys of the config tree: what each one means, and what values it takes.

A labml config item carries no documentation and checks no value. Here both stand in the annotation:

    masking_prob: Annotated[float, Key("share of the characters that are selected", above=0, high=1)] = 0.15

`keys_of` walks the config classes and finds every such item, by its dotted name.
"""

import math
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import yaml
from labml.configs import BaseConfigs

NONE_WORDS = ("none", "null", "")


class ConfigError(ValueError):
    """A key or value that is wrong; the message is one line for the user."""


@dataclass(frozen=True)
class Key:
    """The annotation of a config item that users may set. Ranges are for numbers: above < low <= value <= high."""

    text: str
    above: float | None = None
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Setting:
    """A key as it stands in the tree."""

    name: str  # dotted, such as model.d_model
    type: Any  # int, float, bool, str, list, or such | None; an option of labml's is a str
    default: Any
    key: Key

    def parse(self, value: Any) -> Any:
        """The value as its type, from YAML or from the text of a command line. Raises ConfigError."""
        kind, optional = _optional(self.type)
        if value is None or (optional and isinstance(value, str) and value.lower() in NONE_WORDS):
            if not optional:
                raise ConfigError(f"{self.name} needs a value ({self.type_name})")
            return None
        parsed = _PARSERS[kind](value)
        if parsed is _WRONG:
            hint = ' (quote it for the shell: "key=[{a: 1}]")' if kind is list and isinstance(value, str) else ""
            raise ConfigError(f"{self.name}={_short(value)} is not {self.type_name}{hint}")
        self._check_range(parsed)
        return parsed

    @property
    def type_name(self) -> str:
        kind, optional = _optional(self.type)
        return _TYPE_NAMES[kind] + (" or none" if optional else "")

    @property
    def allowed(self) -> str:
        """The range or the choices in words; empty where any value of the type will do."""
        if self.key.choices:
            return "one of " + ", ".join(self.key.choices)
        words = [(self.key.above, "above"), (self.key.low, "at least"), (self.key.high, "at most")]
        return " and ".join(f"{word} {limit:g}" for limit, word in words if limit is not None)

    def _check_range(self, value: Any) -> None:
        key, wrong = self.key, False
        if key.choices and value not in key.choices:
            near = get_close_matches(value, key.choices, 1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise ConfigError(f"{self.name}={_short(value)}{hint}: choose {self.allowed}")
        if isinstance(value, int | float):
            wrong |= key.above is not None and value <= key.above
            wrong |= key.low is not None and value < key.low
            wrong |= key.high is not None and value > key.high
        if wrong:
            raise ConfigError(f"{self.name}={_short(value)} is out of range: it must be {self.allowed}")


def keys_of(configs: type[BaseConfigs], prefix: str = "") -> dict[str, Setting]:
    """Every key of a config class and of the config classes nested in it, by dotted name, in order."""
    return {setting.name: setting for setting in _walk(configs, prefix)}


def _walk(configs: type[BaseConfigs], prefix: str) -> Iterator[Setting]:
    for name, annotation in configs.__annotations__.items():
        if isinstance(annotation, type) and issubclass(annotation, BaseConfigs):
            yield from _walk(annotation, f"{prefix}{name}.")
        elif typing.get_origin(annotation) is typing.Annotated:
            kind, key = typing.get_args(annotation)[:2]
            options = [option.option_name for option in configs.__dict__.get("_calculators", {}).get(name, [])]
            if options:  # a key whose values are the functions registered with @option
                kind, key = str, Key(key.text, choices=tuple(options))
            yield Setting(prefix + name, kind, getattr(configs, name).value, key)


def unknown_key(name: str, known: typing.Iterable[str]) -> ConfigError:
    """The error for a key that does not exist, with the nearest one that does."""
    known = list(known)
    # A bare last part, such as d_model, is a common slip: compare with those too.
    by_last_part = {key.rpartition(".")[2]: key for key in known}
    near = get_close_matches(name, known, 1) or get_close_matches(name.rpartition(".")[2], by_last_part, 1)
    hint = f": did you mean {by_last_part.get(near[0], near[0])}?" if near else ": --help lists every key"
    return ConfigError(f"unknown key {name!r}{hint}")


_WRONG = object()


def _optional(kind: Any) -> tuple[Any, bool]:
    if isinstance(kind, types.UnionType):
        return next(k for k in typing.get_args(kind) if k is not types.NoneType), True
    return typing.get_origin(kind) or kind, False


def _parse_int(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    number = _parse_float(value)  # 1e6 is a fine way to write an integer
    return int(number) if number is not _WRONG and number.is_integer() else _WRONG


def _parse_float(value: Any) -> Any:
    if isinstance(value, bool):
        return _WRONG
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return _WRONG
    return number if math.isfinite(number) else _WRONG


def _parse_bool(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}.get(str(value).lower(), _WRONG)


def _parse_str(value: Any) -> Any:
    return value if isinstance(value, str) else _WRONG


def _parse_list(value: Any) -> Any:
    if isinstance(value, str):
        try:
            value = yaml.safe_load(value)
        except (yaml.YAMLError, ValueError, RecursionError):  # PyYAML lets ValueError out for 2024-02-30
            return _WRONG
    return value if isinstance(value, list) else _WRONG


_PARSERS = {int: _parse_int, float: _parse_float, bool: _parse_bool, str: _parse_str, list: _parse_list}
_TYPE_NAMES = {int: "an integer", float: "a number", bool: "true or false", str: "a text", list: "a list in YAML"}


def _short(value: Any) -> str:
    try:
        text = str(value)
    except ValueError:  # Python refuses to write very long integers
        text = "a number of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."
