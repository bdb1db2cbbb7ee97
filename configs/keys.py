"""The keys of the config tree: the annotation of a key declares its type, range and resume rule.

A labml config item carries no documentation and checks no value, so both are in its annotation:

    masking_prob: Annotated[float, Key("share of the characters that are selected", above=0, high=1)] = 0.15

This line is all that a new key needs. `keys_of` walks the config classes and finds every such item
by its dotted name.
"""

import math
import re
import typing
from collections.abc import Iterable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from typing import Any

from labml.configs import BaseConfigs

from configs.branch import is_reference
from configs.command_line.strict_yaml import parse_yaml
from runs.errors import InputError

LONGEST_WORD = 100  # characters of a word that is compared with others
SIMILAR = 0.75  # the least similarity of a key to a wrong one


class ConfigError(InputError):
    """A wrong key or value; the message is one line for the user."""


@dataclass(frozen=True)
class Key:
    """The facts about a config item that users may set. A number has a range: `low` or `above`, and
    `high`."""

    text: str  # one line of --help, with the unit
    above: float = -math.inf
    low: float = -math.inf
    high: float = 10**15
    choices: tuple[str, ...] = ()
    resume: bool = False  # whether a resumed run may change it
    # False: runs that differ in this key only are repeats of each other
    compared: bool = True
    # whether its value may be the user's own code, `file.py:name`
    reference: bool = False


# a share of something, from 0 to 1
Share = partial(Key, low=0, high=1)


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
        parsed = None
        hint = did_you_mean(str(value), self.key.choices)
        try:
            parsed = _parsed(value, self.kind)
        except ValueError as error:  # not YAML
            hint = f" ({error})"
        if parsed is not None and self._is_allowed(parsed):
            return parsed
        if self.kind is list and isinstance(value, str) and not value.endswith("]"):
            hint = ' (quote it for the shell: "key=[{a: 1}]")'
        raise ConfigError(f"{self.name}={value} must be {self.allowed}{hint}")

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
        key = self.key
        if key.choices:
            own = ", or file.py:name" if key.reference else ""
            return f"one of {', '.join(key.choices)}{own}"
        words = _TYPE_NAMES[self.kind]
        if math.isfinite(key.above):
            words += f" above {key.above:,} and at most {key.high:,}"
        elif math.isfinite(key.low):
            words += f" from {key.low:,} to {key.high:,}"
        return words + (", or null" if self.optional else "")


def keys_of(configs: type[BaseConfigs], prefix: str = "") -> dict[str, Setting]:
    """Every key of a config class and of the config classes nested in it, by dotted name, in order."""
    settings = {}
    for name, annotation in configs.__annotations__.items():
        if isinstance(annotation, type) and issubclass(annotation, BaseConfigs):
            settings |= keys_of(annotation, f"{prefix}{name}.")
        elif typing.get_origin(annotation) is typing.Annotated:
            kind, key = typing.get_args(annotation)
            # the functions registered with @option
            options = configs.__dict__.get("_calculators", {}).get(name, [])
            choices = tuple(option.option_name for option in options)
            if typing.get_origin(kind) is typing.Literal:
                choices = typing.get_args(kind)
            if choices:
                kind = str
                key = replace(key, choices=choices)
            kinds = typing.get_args(kind) or [kind]  # (int, NoneType) for int | None
            default = getattr(configs, name).value
            settings[prefix + name] = Setting(
                prefix + name, kinds[0], len(kinds) > 1, default, key
            )
    return settings


def unknown_key(name: str, settings: Iterable[str]) -> ConfigError:
    """The error for a key that does not exist, with the nearest key, if there is one."""
    # The last parts decide: the group is often left out, as in d_model=256, and if it is there, it
    # makes any two of its keys look alike.
    last = name.rpartition(".")[2]
    by_last_part = {key.rpartition(".")[2]: key for key in settings}
    near = [part for part in by_last_part if last and last in part]
    near = near or get_close_matches(last, by_last_part, 1, SIMILAR)
    keys = get_close_matches(name, [by_last_part[part] for part in near], 1, 0)
    hint = f"did you mean {keys[0]}?" if keys else "--help lists every key"
    return ConfigError(f"unknown key {name!r}: {hint}")


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """The end of an error message that names the nearest choice; empty if none is near."""
    near = get_close_matches(word[:LONGEST_WORD], choices, 1)
    return f": did you mean {near[0]}?" if near else ""


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
    return not re.search("[\0\ud800-\udfff]", text)


_TYPE_NAMES = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "UTF-8 text",
    list: "a list in YAML",
}
