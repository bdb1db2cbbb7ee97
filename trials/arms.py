"""The arms of a trial: the recipes that it compares, checked before any training."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from configs.checks import BUDGETS
from configs.command_line.command import OWN_CODE, parse
from configs.keys import ConfigError
from configs.references import replaced
from runs.files import ROOT

CONFIG = ".yaml"
# the packages whose code decides the weights of a run and its losses
CODE = ("configs", "data", "distributed", "model", "runs", "trained", "training")


@dataclass(frozen=True)
class Arm:
    """A recipe: its name, the arguments of experiment.py, and every key with its value."""

    name: str
    arguments: list[str]
    values: dict[str, Any]

    def seed(self, pair: int) -> int:
        return self.values["seed"] + pair

    @property
    def fingerprint(self) -> str:
        """A hash of all that decides the results of its runs: keys, and files of the user."""
        digest = hashlib.sha256(json.dumps(self.values, sort_keys=True).encode())

        def add(_: str, path: Path) -> Path:
            digest.update(path.read_bytes())
            return path

        replaced(self.values, OWN_CODE, add)
        return digest.hexdigest()


def arm(words: Sequence[str], common: Sequence[str], below: Sequence[str]) -> Arm:
    """An arm from its own words, keys or a config file, on top of the common ones. `below` is the
    option of experiment.py for what a config file replaces. Raises ConfigError."""
    files = [word for word in words if word.endswith(CONFIG) and "=" not in word]
    if len(files) > 1:
        raise ConfigError(f"{' and '.join(files)}: one config file per arm")
    keys = {
        "training.evaluations": "1",  # at the end
        "sample.every_evaluations": "0",
        "training.threads": str(torch.get_num_threads()),  # the same for all arms
    }
    for word in (*common, *words):
        key, equals, value = word.partition("=")
        if word not in files and not equals:
            raise ConfigError(f"{word!r} is neither key=value nor a file *{CONFIG}")
        keys[key] = value
    keys = {key: value for key, value in keys.items() if key not in files}

    arguments = [f"{key}={value}" for key, value in keys.items()]
    arguments = [f"--config={files[0]}", *arguments] if files else [*below, *arguments]
    command = parse(arguments)
    name = " ".join(words) or command.source.partition(":")[0]
    return Arm(name, arguments, command.values)


def check_arms(arms: Sequence[Arm], equal: str, most: int) -> None:
    """Raise ConfigError unless the arms differ, and all have one budget, in the unit `equal`."""
    budget = f"training.max_{equal}"
    for each in arms:
        set_budgets = [key for key in BUDGETS if each.values[key] is not None]
        if set_budgets != [budget]:
            raise ConfigError(
                f"{each.name} has {' and '.join(set_budgets)}, but --equal {equal} needs one budget:"
                f" add --both {budget}=N"
            )
        if each.values[budget] != arms[0].values[budget]:
            raise ConfigError(
                f"the arms differ in {budget}: give one for all with --both {budget}=N"
            )

    for i, one in enumerate(arms):
        for other in arms[:i]:
            if one.fingerprint == other.fingerprint:
                raise ConfigError(
                    f"{one.name} and {other.name} are the same recipe: add seed=1000 to one of"
                    " them to compare it with itself"
                )
            shift = abs(one.seed(0) - other.seed(0))
            if 0 < shift < most:
                raise ConfigError(
                    f"{one.name} and {other.name} would share seeds: make them {most} apart"
                )


def code_version() -> str:
    """A checksum of the code that trains and evaluates."""
    paths = [ROOT / "experiment.py"]
    for package in CODE:
        paths += sorted((ROOT / package).rglob("*.py"))
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
