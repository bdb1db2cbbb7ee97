"""The arms of a trial: the recipes that it compares, checked before any training."""

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import torch

from configs.checks import BUDGETS
from configs.command_line.command import OWN_CODE, parse
from configs.keys import ConfigError
from configs.references import replaced
from data.corpus import CACHE, load_corpus
from runs.files import ROOT, write_atomically

TRIALS = ROOT / "logs" / "trials"
CONFIG = ".yaml"
COMMIT = "commit"  # a word of an arm, but not a key
# the packages whose code decides the weights of a run and its losses
CODE = ("configs", "data", "distributed", "model", "training")
PARSE = """
import json, sys
from configs.command_line.command import parse
print(json.dumps(parse(sys.argv[1:]).values))
"""


@dataclass(frozen=True)
class Arm:
    """A recipe: its name, the code that trains it, the arguments of experiment.py, and every key
    with its value."""

    name: str
    root: Path
    arguments: list[str]
    values: dict[str, Any]

    def seed(self, pair: int) -> int:
        return self.values["seed"] + pair

    @property
    def fingerprint(self) -> str:
        """A hash of all that decides the results of its runs: keys, code, and files of the user."""
        digest = hashlib.sha256(json.dumps(self.values, sort_keys=True).encode())

        def add(_: str, path: Path) -> Path:
            digest.update(path.read_bytes())
            return path

        replaced(self.values, OWN_CODE, add)
        add("", self.root / "experiment.py")
        for package in CODE:
            paths = (self.root / package).rglob("*.py")
            for path in sorted(paths):
                if CACHE not in path.parents:  # what torch.compile writes
                    add("", path)

        return digest.hexdigest()


def arm(words: Sequence[str], common: Sequence[str], base: Sequence[str]) -> Arm:
    """An arm from its own words, on top of the common ones: keys, a config file, or a commit. `base`
    is the option of experiment.py whose place a config file takes. Raises ConfigError."""
    keys = {
        "training.evaluations": "1",  # at the end
        "sample.every_evaluations": "0",
        "training.threads": str(torch.get_num_threads()),  # the same for all arms
    }
    for word in (*common, *words):
        key, equals, value = word.partition("=")
        if equals:
            keys[key] = value
        elif word.endswith(CONFIG):
            base = [f"--config={word}"]
        else:
            raise ConfigError(f"{word!r} is neither key=value nor a file *{CONFIG}")

    revision = keys.pop(COMMIT, None)
    arguments = [*base, *(f"{key}={value}" for key, value in keys.items())]
    name = " ".join(words) or " ".join(base).removeprefix("--") or "the preset"
    if revision is None:
        return Arm(name, ROOT, arguments, parse(arguments).values)
    root = checked_out(revision)
    return Arm(name, root, arguments, parsed_by(root, arguments))


def checked_out(revision: str) -> Path:
    """The files of a commit of this repository, in a folder of their own. Raises ConfigError."""
    git = ["git", "-C", str(ROOT)]
    named = subprocess.run(
        [*git, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"],
        capture_output=True,
        text=True,
    )
    if named.returncode:
        raise ConfigError(f"{COMMIT}={revision}: no such commit in {ROOT}")
    commit = named.stdout.strip()
    folder = TRIALS / "commits" / commit
    if not folder.exists():
        archive = subprocess.run(
            [*git, "archive", commit], capture_output=True, check=True
        )
        temporary = folder.with_name(f"{commit}.{os.getpid()}.tmp")
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(temporary, filter="data")
        os.replace(temporary, folder)
    return folder


def parsed_by(root: Path, arguments: Sequence[str]) -> dict[str, Any]:
    """Every key with its value, as the code in `root` reads the arguments. Raises ConfigError."""
    # -P: not the packages of the working directory
    command = [sys.executable, "-P", "-c", PARSE, *arguments]
    parsed = subprocess.run(
        command, env=environment(root), capture_output=True, text=True
    )
    if parsed.returncode:
        error = parsed.stderr.strip().rpartition("\n")[2]
        raise ConfigError(f"{COMMIT} {root.name[:8]}: {error.partition(': ')[2]}")
    return json.loads(parsed.stdout)


def environment(root: Path) -> dict[str, str]:
    """The environment of a program of the code in `root`, with the texts of this one."""
    return os.environ | {"PYTHONPATH": str(root), "FOLIO_CACHE": str(CACHE.resolve())}


def check_arms(arms: Sequence[Arm], equal: str, most: int) -> None:
    """Raise ConfigError unless the arms differ, and all have one budget, in the unit `equal`."""
    key = f"training.max_{equal}"
    budgets = []
    for arm in arms:
        limits = {name: arm.values[name] for name in BUDGETS}
        budgets.append({name: limit for name, limit in limits.items() if limit})

    if budgets != [{key: budgets[0].get(key)}] * len(arms):
        shown = " and ".join(map(str, budgets))
        raise ConfigError(
            f"--equal {equal} needs the same {key} in all arms, and no other budget, not {shown}:"
            f" add --both {key}=N"
        )

    for one, other in combinations(arms, 2):
        if one.fingerprint == other.fingerprint:
            raise ConfigError(
                f"{one.name} and {other.name} are the same recipe: seed=1000 in one of them compares"
                " it with itself"
            )
        if 0 < abs(one.seed(0) - other.seed(0)) < most:
            raise ConfigError(
                f"{one.name} and {other.name} would share seeds: make them {most} apart"
            )


def held_out(values: dict[str, Any]) -> Path:
    """A file of the text of these keys in which the last tenth of the training text and the
    validation text have changed places: no earlier trial has measured a loss there. Raises
    ConfigError for documents and large texts."""
    corpus = load_corpus(values["data.corpus"])
    if corpus.stored is not None:
        raise ConfigError("--holdout needs a text in memory, without documents")
    n = len(corpus.validation)
    text = corpus.training[:-n] + corpus.validation + corpus.training[-n:]
    path = TRIALS / f"holdout-{corpus.sha256[:16]}.txt"
    write_atomically(path, text.encode())
    return path
