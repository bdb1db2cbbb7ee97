"""The command line: presets, files and `key=value`s in, every key with its value out."""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from configs.checks import BUDGETS, check, check_future
from configs.experiment import Configs, best_device
from configs.keys import ConfigError, Setting, keys_of, unknown_key
from configs.one_line import OneLineParser
from runs.find import find_run
from runs.run_folder import RunFolder

PRESETS = Path(__file__).parent / "presets"
SETTINGS: Mapping[str, Setting] = keys_of(Configs)


@dataclass(frozen=True)
class Command:
    """What a command line asks for."""

    values: dict[str, Any]  # every key, parsed and checked
    overridden: dict[str, Any]  # the keys that the command line itself set
    source: str  # the preset or file under them, and why it was taken
    n_seeds: int = 1  # how many runs, each with a seed of its own
    resumed: RunFolder | None = None  # the run that goes on

    @property
    def comment(self) -> str:
        """What tells this run from others, in one line."""
        words = (f"{key}={_word(value)}" for key, value in self.overridden.items() if key != "logs")
        return " ".join([self.source.partition(":")[0], *words])


def _word(value: Any) -> str:
    """A value as a command line has it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def parse(arguments: Sequence[str]) -> Command:
    """Read a command line. Raises ConfigError for what is wrong; prints the keys and ends for --help."""
    parser = OneLineParser(
        prog="python experiment.py",
        usage="%(prog)s [--preset NAME | --config FILE.yaml | --resume RUN] [--seeds N] [key=value ...]",
        description="Train a masked language model.",
        epilog=_keys_help(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    base = parser.add_mutually_exclusive_group()
    base.add_argument("--preset", metavar="NAME", help=f"a recipe to start from: {', '.join(presets())}")
    base.add_argument("--config", metavar="FILE.yaml", help="a file of keys to start from, such as a run's config.yaml")
    base.add_argument("--resume", metavar="RUN", help="go on with a run: a folder, a uuid or its beginning, or last")
    parser.add_argument("--seeds", metavar="N", type=int, default=1, help="train N runs, with seed, seed + 1, ...")
    parser.add_argument("keys", nargs="*", metavar="key=value", help="any of the keys below")
    options = parser.parse_intermixed_args(arguments)  # keys and options in any order
    if not 1 <= options.seeds <= 1_000:
        raise ConfigError(f"--seeds {options.seeds} is out of range: it must be at least 1 and at most 1000")

    overridden = _assignments(options.keys)
    if options.resume is not None:
        if options.seeds > 1:
            raise ConfigError("--resume goes on with one run, --seeds begins several: give one of them")
        return _resume(options.resume, overridden)
    if options.config is not None:
        base_values, source = read_config(Path(options.config)), f"config {options.config}"
    else:
        name, why = _choose_preset(options.preset, overridden.get("device", "auto"))
        base_values, source = read_config(PRESETS / f"{name}.yaml"), f"preset {name}: {why}"
    return Command(resolve(base_values, overridden), overridden, source, options.seeds)


def _resume(name: str, overridden: dict[str, Any]) -> Command:
    """Go on with a run under its own config; only what alters its future may be set anew."""
    run = find_run(name, logs_folder(overridden.pop("logs", "logs")))
    before = resolve(read_config(run.config_path), {})
    values = resolve(before, overridden)
    values["logs"] = before["logs"] = str(run.path.parent.parent)  # wherever the folder was moved to
    check_future(before, values)
    return Command(values, overridden, f"resuming {run.path}", resumed=run)


def logs_folder(logs: str) -> Path:
    """The folder that a key `logs` means: a relative one is in the repository."""
    return PRESETS.parent.parent / Path(logs).expanduser()


def one_seed(arguments: Sequence[str], seed: int) -> list[str]:
    """The same command line for a single run with a seed."""
    words = list(arguments)
    for i, word in enumerate(words):
        if word == "--seeds":
            del words[i : i + 2]
            break
    words = [word for word in words if not word.startswith("--seeds=")]
    return [*words, f"seed={seed}"]  # the last value of a key is the one that holds


def presets() -> list[str]:
    """The names that --preset takes."""
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))


def read_config(path: Path) -> dict[str, Any]:
    """The keys of a YAML file, parsed. Raises ConfigError."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path} ({error.strerror or error})") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # PyYAML lets ValueError out for 2024-02-30
        raise ConfigError(f"{path} is not YAML ({' '.join(str(error).split())})") from error
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise ConfigError(f"{path} does not hold keys and values, such as model.d_model: 256")
    return {key: _setting(key).parse(value) for key, value in content.items()}


def resolve(base: Mapping[str, Any], overridden: Mapping[str, Any]) -> dict[str, Any]:
    """Every key with its value: the defaults, under `base`, under `overridden`; checked together.

    A budget that is overridden takes the place of all of the base's: `training.max_steps=500` on a preset that
    ends after 180 seconds trains 500 steps. Likewise `masking.masking_prob` takes the place of the rates of the base's
    stages.
    """
    values = {name: setting.default for name, setting in SETTINGS.items()}
    for layer in (base, overridden):
        if any(layer.get(budget) is not None for budget in BUDGETS):
            values |= dict.fromkeys(BUDGETS)
        if "masking.masking_prob" in layer and "training.stages" not in layer:
            values["training.stages"] = _without_rates(values["training.stages"])
        values |= layer
    values["device"] = best_device() if values["device"] == "auto" else values["device"]
    check(values)
    return values


def _without_rates(stages: list[Any]) -> list[Any]:
    return [{key: row[key] for key in row if key != "masking_prob"} if isinstance(row, dict) else row for row in stages]


def _assignments(words: Sequence[str]) -> dict[str, Any]:
    values = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals:
            raise ConfigError(f"{word!r} is not of the form key=value")
        values[key] = _setting(key).parse(text)
    return values


def _setting(key: str) -> Setting:
    if key not in SETTINGS:
        raise unknown_key(key, SETTINGS)
    return SETTINGS[key]


def _choose_preset(name: str | None, device: str) -> tuple[str, str]:
    if name is not None:
        if name not in presets():
            raise ConfigError(f"there is no preset {name!r}: choose one of {', '.join(presets())}")
        return name, "as asked for"
    if device != "auto":
        return "gpu" if device.startswith("cuda") else "quick", f"device={device} (--preset chooses another)"
    if best_device() == "cuda":
        return "gpu", "a CUDA device is here (--preset chooses another)"
    return "quick", "no CUDA device is here (--preset chooses another)"


def _keys_help() -> str:
    lines = ["keys, with their defaults, and what presets set in their place:", ""]
    by_preset = {name: read_config(PRESETS / f"{name}.yaml") for name in presets()}
    for setting in SETTINGS.values():
        lines.append(f"  {setting.name}={_in_yaml(setting.default)}")
        words = [setting.key.text, setting.type_name if not setting.key.choices else "", setting.allowed]
        lines.append("      " + "; ".join(word for word in words if word))
        own = {name: keys.get(setting.name, setting.default) for name, keys in by_preset.items()}
        differing = (f"{name}: {_in_yaml(value)}" for name, value in own.items() if value != setting.default)
        lines += [f"      in the preset {words}" for words in differing]
    return "\n".join(lines)


def _in_yaml(value: Any) -> str:
    """A value as a config file has it, on one line."""
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("\n...\n").strip()
