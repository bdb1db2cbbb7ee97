"""The command line: a preset, a file or a run, and `key=value`s on top; the result is every key
with its value."""

import argparse
import os
import shlex
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.checks import BUDGETS, check
from configs.command_line.program import OneLineParser
from configs.command_line.scripts import number
from configs.command_line.strict_yaml import parse_yaml
from configs.experiment import Configs
from configs.hugging_face import PREFIX, initial_keys, kept_keys
from configs.keys import (
    ConfigError,
    Setting,
    is_reference,
    is_text,
    keys_of,
    unknown_key,
)
from configs.memory import check_memory
from configs.references import absolute, replaced, unchanged_or_copied
from configs.tokenizers import inherited, read_tokens
from distributed.interruption import stopping_signals
from distributed.launch import rank, started_by_torchrun
from runs.files import ROOT, to_yaml
from runs.find import all_runs, find_run
from runs.reading import read_bytes
from runs.run_folder import RunFolder
from runs.schema import PLAN, checked

PRESETS = Path(__file__).parents[1] / "presets"
SETTINGS = keys_of(Configs)
DEFAULTS: dict[str, Any] = {name: setting.default for name, setting in SETTINGS.items()}
OWN_CODE = [name for name, setting in SETTINGS.items() if setting.key.reference]
LARGEST_CONFIG = 500_000  # bytes; parsing YAML takes seconds per megabyte


def to_stderr(line: str) -> None:
    if rank() == 0:  # of several processes, all read the same run
        print(line, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Command:
    """A parsed and checked command line."""

    values: dict[str, Any]  # every key
    overridden: dict[str, Any]  # the keys that the command line itself sets
    source: str  # where the other values come from: a preset, a file or a run, and why
    logs: Path  # the folder for runs, absolute
    n_seeds: int = 1  # number of runs, each with its own seed
    resumed: RunFolder | None = None
    # of the config file, by plan.py (see `runs.schema.PLAN`)
    plan: dict[str, Any] | None = None

    @property
    def comment(self) -> str:
        """One line that distinguishes this run from others: its command."""
        words = [self.source.partition(": ")[0]]
        for key, value in self.overridden.items():
            if key != "logs":
                words.append(f"{key}={to_yaml(value, in_one_line=True)}")
        return " ".join(words)


def _parser(epilog: str) -> OneLineParser:
    parser = OneLineParser(
        prog="python experiment.py",
        usage="%(prog)s [--preset NAME | --config FILE.yaml | --resume RUN | --init-from RUN] "
        "[--seeds N] [key=value ...]",
        description="Train a masked language model.",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    base = parser.add_mutually_exclusive_group()
    for option, value, text in (
        ("--preset", "NAME", f"start from a recipe: {', '.join(presets())}"),
        (
            "--config",
            "FILE.yaml",
            "start from a file of keys, such as a run's config.yaml",
        ),
        (
            "--resume",
            "RUN",
            "continue a run: a folder, a uuid, the start of one, a name, or last",
        ),
        (
            "--init-from",
            "RUN",
            "start from the config and the best weights of a run, or from hf:FOLDER, a checkpoint of"
            " Hugging Face",
        ),
    ):
        base.add_argument(option, metavar=value, help=text)
    seeds = "train N runs, with seed, seed + 1, ..."
    parser.add_argument(
        "--seeds", metavar="N", type=number(int, 1, 1_000), default=1, help=seeds
    )
    parser.add_argument(
        "keys", nargs="*", metavar="key=value", help="any of the keys below"
    )
    return parser


def parse(arguments: list[str]) -> Command:
    """Parse a command line. Raises InputError; --help prints every key and exits."""
    for word in arguments:
        if not is_text(word):
            raise ConfigError(
                f"{word!r} is not UTF-8 text: rename the file or retype the word"
            )
    # it reads all presets
    keys_help = _keys_help() if {"-h", "--help"} & set(arguments) else ""
    # keys and options in any order
    options, unknown = _parser(keys_help).parse_known_intermixed_args(arguments)
    if options.seeds > 1 and (options.resume is not None or started_by_torchrun()):
        raise ConfigError(
            "--seeds starts several runs, one after the other: use it without --resume and torchrun"
        )
    overridden = _assignments([*unknown, *options.keys])
    if options.resume is not None:
        return _resume(options.resume, overridden)
    if options.init_from is not None:
        return _init_from(options.init_from, overridden, options.seeds)
    if options.config is not None:
        path = Path(options.config)
        source = f"config {path}"
    else:
        name, why = _choose_preset(options.preset, overridden.get("device", "auto"))
        path = PRESETS / f"{name}.yaml"
        source = f"preset {name}: {why}"
    values = read_tokens(resolve(read_config(path), overridden))
    logs = logs_folder(values["logs"])
    return Command(
        values, overridden, source, logs, options.seeds, plan=read_plan(path)
    )


def _resume(name: str, overridden: dict[str, Any]) -> Command:
    """Continue a run with its own config, in which only some keys may change."""
    run = find_run(name, logs_folder(overridden.pop("logs", "logs")))
    if run.suffix:
        raise ConfigError(
            f"--resume continues a run from its last checkpoint: use --init-from {name}"
        )
    logs = run.path.parent.parent  # the folder may have moved
    config = DEFAULTS | config_of(run)
    if os.path.realpath(ROOT / os.path.expanduser(config["logs"])) != os.path.realpath(
        logs
    ):
        config["logs"] = str(logs)
    tokens = Path(config["data.tokens"])
    # those of another run, which has moved
    if tokens.name == run.vocabulary_path.name and not os.path.exists(tokens):
        config["data.tokens"] = str(run.vocabulary_path.resolve())
    values = read_tokens(resolve(config, overridden), run)
    changed = []
    for key, setting in SETTINGS.items():
        if values[key] != config[key] and not setting.key.resume:
            changed.append(f"{key} (it is {config[key]})")
    if changed:
        raise ConfigError(
            f"a resumed run cannot change {', '.join(changed)}: start a new run instead"
        )
    return Command(values, overridden, f"resuming {run.path}", logs, resumed=run)


def _init_from(name: str, overridden: dict[str, Any], n_seeds: int) -> Command:
    """Start a run with the config, the best weights and the characters of another one, or with a
    checkpoint of Hugging Face."""
    if name.startswith(PREFIX):
        keys = initial_keys(name.removeprefix(PREFIX), overridden)
        values = read_tokens(resolve(keys, overridden))
        source = f"init-from {name}: its weights and its tokens"
        return Command(values, overridden, source, logs_folder(values["logs"]), n_seeds)
    logs = logs_folder(overridden.get("logs", "logs"))
    run = find_run(name, logs)
    name = run.path.name if run.path.parent.parent == logs else str(run.path)
    name += run.suffix
    initial = {"initial_weights": name} | inherited(run, overridden)
    config = config_of(run) | {"logs": DEFAULTS["logs"]}
    values = read_tokens(resolve(config, overridden | initial))
    which = "its" if run.suffix else "its best"
    source = f"init-from {name}: its config and {which} weights"
    return Command(values, overridden, source, logs, n_seeds)


def run_seeds(program: str, arguments: list[str], command: Command) -> int:
    """Run a program for several seeds, each in its own process; stops at the first failure. Returns
    the exit code."""
    words = [word for word in arguments if not word.startswith("seed=")]
    words.append("--seeds=1")  # the last option counts
    # `last` is another run after the first seed
    if any(word.startswith("--init-from") for word in words):
        words.append(f"--init-from={command.values['initial_weights']}")
    earlier = {run.path for run in all_runs(command.logs)}
    first = command.values["seed"]
    for seed in range(first, first + command.n_seeds):
        print("seed", seed, flush=True)
        code = _run_one([sys.executable, program, *words, f"seed={seed}"])
        if code:
            return code
    paths = [str(run.path) for run in all_runs(command.logs) if run.path not in earlier]
    print(f"the mean over seeds: python evaluate.py {shlex.join(paths)}", flush=True)
    return 0


def _run_one(words: list[str]) -> int:
    """Run a program, and pass on the signals that stop it; returns its exit code, not 0 after one."""
    signals: list[int] = []
    pending: list[int] = []  # to be passed on
    run: subprocess.Popen[bytes] | None = None

    def stop(number: int, _: Any) -> None:
        signals.append(number)
        # the terminal sends Ctrl-C and SIGHUP to the run itself
        if number in (signal.SIGTERM, signal.SIGUSR1):
            pending.append(number)
            pass_on()

    def pass_on() -> None:
        while run and pending:
            run.send_signal(pending.pop())

    before = {number: signal.signal(number, stop) for number in stopping_signals()}
    try:
        run = subprocess.Popen(words)
        pass_on()  # what arrived while the run was started
        code = run.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if code < 0:  # a signal has ended it
        return 128 - code
    return code or (128 + signals[0] if signals else 0)


def logs_folder(logs: str) -> Path:
    """The folder that the key `logs` names; a relative path starts at the repository. Raises
    ConfigError."""
    try:
        folder = ROOT / Path(logs).expanduser()
        if stat.S_ISDIR(folder.stat().st_mode):
            return folder
        reason = "not a folder"
    except FileNotFoundError:
        return folder  # the run will create it
    # a symlink loop, a long name; RuntimeError: ~unknown_user
    except (OSError, RuntimeError) as error:
        reason = error
    raise ConfigError(f"logs={logs} cannot be used ({reason}): set logs to a folder")


def ignored_in_comparisons() -> frozenset[str]:
    """The keys in which repeats of one experiment may differ."""
    return frozenset(
        name for name, setting in SETTINGS.items() if not setting.key.compared
    )


def presets() -> list[str]:
    """The names that --preset takes."""
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))


def read_config(path: Path) -> dict[str, Any]:
    """Read the keys of a YAML file, with parsed values. Raises ConfigError."""
    content = _read_content(path)
    content.pop("plan", None)
    content.pop("plan.curve", None)  # a key of earlier versions
    try:
        return {key: _setting(key).parse(value) for key, value in content.items()}
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def read_plan(path: Path) -> dict[str, Any] | None:
    """What plan.py adds to the keys of a file (see `runs.schema.PLAN`). Raises ConfigError."""
    plan = _read_content(path).get("plan")
    return (
        None
        if plan is None
        else checked(plan, PLAN, f"the plan in {path}", ConfigError)
    )


def _read_content(path: Path) -> dict[str, Any]:
    try:
        content = parse_yaml(read_bytes(path, LARGEST_CONFIG).decode())
    except OSError as error:
        raise ConfigError(f"cannot read {path} ({error.strerror or error})") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not YAML ({error})") from error
    content = {} if content is None else content
    if not isinstance(content, dict) or not all(
        isinstance(key, str) for key in content
    ):
        raise ConfigError(
            f"{path} does not hold keys and values, such as model.d_model: 256"
        )
    return content


def config_of(run: RunFolder, say: Callable[[str], None] = to_stderr) -> dict[str, Any]:
    """The keys of a run, with the user's own files, or the run's copies of those that have changed.

    `say` gets a line for each copy that is used. Raises ConfigError.
    """
    config = read_config(run.config_path) | kept_keys(run)
    return unchanged_or_copied(config, OWN_CODE, run, say)


def resolve(
    base: Mapping[str, Any], overridden: Mapping[str, Any], *, trains: bool = True
) -> dict[str, Any]:
    """Every key with its value: `overridden` over `base` over the defaults. Raises ConfigError if
    values conflict.

    A budget in a layer replaces all budgets of the layers below: `training.max_steps=500` on a
    preset of 180 seconds trains 500 steps. Likewise `masking.masking_prob` replaces the masking
    rates of the stages below.
    """
    values = dict(DEFAULTS)
    for layer in (base, overridden):
        if any(layer.get(budget) is not None for budget in BUDGETS):
            values |= dict.fromkeys(BUDGETS)
        if "masking.masking_prob" in layer and "training.stages" not in layer:
            values["training.stages"] = [
                _without_rate(row) for row in values["training.stages"]
            ]
        values |= layer
    check(values)
    if trains:
        values = replaced(values, OWN_CODE, absolute)
    if values["device"] != "cpu":
        from configs.devices import available_device  # and PyTorch, only now

        values["device"] = available_device(values["device"])
    # using a trained model takes less memory; the keys say little about a model of the user's
    if trains and not is_reference(values["model.architecture"]):
        check_memory(values)
    return values


def _without_rate(row: Any) -> Any:
    """A row of `training.stages`, which is not yet checked, without its masking rate."""
    if not isinstance(row, dict):
        return row
    return {key: value for key, value in row.items() if key != "masking_prob"}


def _assignments(words: list[str]) -> dict[str, Any]:
    values = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals:
            raise ConfigError(f"{word!r} is not of the form key=value")
        value = _setting(key).parse(text)
        if values.setdefault(key, value) != value:
            raise ConfigError(
                f"{key} has two values, {values[key]} and {value}: give one"
            )
    return values


def _setting(key: str) -> Setting:
    if key not in SETTINGS:
        raise unknown_key(key, SETTINGS)
    return SETTINGS[key]


def _choose_preset(name: str | None, device: str) -> tuple[str, str]:
    """The preset's name and the reason for it."""
    if name in presets():
        return name, "as requested"
    if name is not None:
        raise ConfigError(
            f"unknown preset {name!r}: choose one of {', '.join(presets())}"
        )
    if device != "auto":
        is_cuda = device.startswith("cuda")
        why = f"device={device}"
    else:
        from configs.devices import without_cuda

        why_not = without_cuda()
        is_cuda = why_not is None
        why = why_not or "found a CUDA device"
    return "gpu" if is_cuda else "quick", f"{why} (--preset chooses another)"


def _keys_help() -> str:
    lines = [
        "keys and their defaults (*: may change on --resume), and what the presets set instead:",
        "",
    ]
    by_preset = {name: read_config(PRESETS / f"{name}.yaml") for name in presets()}
    for name, setting in SETTINGS.items():
        key = setting.key
        mark = "*" if key.resume else " "
        lines.append(f"{mark} {name}={to_yaml(setting.default, in_one_line=True)}")
        lines.append(f"      {key.text}")
        if setting.kind is not str or not all(
            choice in key.text for choice in key.choices
        ):
            lines[-1] += f"; {setting.allowed}"
        for preset, keys in by_preset.items():
            value = keys.get(name, setting.default)
            if value != setting.default:
                lines.append(
                    f"      preset {preset}: {to_yaml(value, in_one_line=True)}"
                )
    return "\n".join(lines)
