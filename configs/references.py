"""Your own code by reference: `file.py:name` as the value of a key.

docs/own_code.md has an example of each kind. A run keeps a copy of each file that it uses, and of
the modules that the file imports from its own folder.
"""

import hashlib
import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from configs.branch import is_reference
from configs.keys import ConfigError, did_you_mean
from configs.memory import is_out_of_memory
from runs.errors import InputError, StoppedError
from runs.files import ROOT
from runs.reading import read_bytes
from runs.run_folder import RunFolder

LARGEST = 1_000_000  # bytes of a file
FOLIO = {
    "auditing",
    "benchmarks",
    "board",
    "configs",
    "data",
    "distributed",
    "model",
    "planning",
    "runs",
    "tests",
    "trained",
    "training",
    "trials",
    "writing",
}  # its packages

_modules: dict[Path, ModuleType] = {}
# modules that the user's files import from their own folders
_neighbors: dict[str, Path] = {}
_sources: dict[Path, bytes] = {}  # of both


def path_and_name(reference: str) -> tuple[Path, str]:
    path, _, name = reference.rpartition(":")
    return Path(path), name


def replaced(
    values: dict[str, Any], keys: list[str], function: Callable[[str, Path], Path]
) -> dict[str, Any]:
    """The values with `function(key, path)` in place of the path of each reference in `keys`."""

    def new(key: str, value: Any) -> Any:
        if isinstance(value, list):
            return [new(key, item) for item in value]
        if isinstance(value, dict):  # a row of a mixture of strategies
            return {new(key, name): share for name, share in value.items()}
        if not is_reference(value):
            return value
        path, name = path_and_name(value)
        return f"{function(key, path)}:{name}"

    return values | {key: new(key, values[key]) for key in keys if key in values}


def absolute(key: str, path: Path) -> Path:
    """The absolute path of a user's file. Raises ConfigError if there is no such file."""
    try:
        file = path.expanduser().resolve()
        if file.is_file():
            return file
        reason = "No such file"
    except (
        OSError,
        RuntimeError,
    ) as error:  # RuntimeError: ~unknown_user, a loop of links
        reason = str(error)
    raise ConfigError(f"{key}: cannot read {path} ({reason})")


@dataclass(frozen=True)
class OwnCode:
    """A function or class of the user, with the key that names it."""

    key: str
    path: Path
    name: str
    value: Any = None

    def __call__(self, *arguments: Any) -> Any:
        """Call it. Raises ConfigError with the user's line for any error."""
        self.check_signature(self.value, len(arguments))
        with naming_the_line(str(self)):
            return self.value(*arguments)

    def check_signature(self, function: Any, n_arguments: int, name: str = "") -> None:
        """Raise ConfigError if a function cannot be called with this number of arguments."""
        try:
            inspect.signature(function).bind(*range(n_arguments))
        except ValueError:  # a function in C has no signature
            return
        except TypeError as error:
            name = name or self.name
            raise self.error(
                f"{name} is called with {n_arguments} argument(s): {error}"
            ) from error

    def check_type(self, value: Any, kind: Any, name: str) -> None:
        """Raise ConfigError if a value that the user's code has returned is not of the kind."""
        if not isinstance(value, kind):
            raise self.error(f"it must return {name}, not {type(value).__name__}")

    def check_shapes(
        self, contract: str, function: Callable[[], Any], *shapes: list[int]
    ) -> Any:
        """Call the user's code, which must return tensors of these shapes; returns the tensors."""
        with naming_the_line(f"{self}: {contract}, but raises"):
            tensors = function()
            returned = [_shape(tensor) for tensor in tensors]
        if returned != list(shapes):
            raise self.error(f"{contract}, not {', '.join(map(str, returned))}")
        return tensors

    def error(self, message: str) -> ConfigError:
        return ConfigError(f"{self}: {message}")

    def __str__(self) -> str:
        return f"{self.key}={self.path}:{self.name}"


def _shape(value: Any) -> Any:
    """The shape of a tensor, or else the name of the value's type."""
    return list(value.shape) if hasattr(value, "shape") else type(value).__name__


def load(key: str, reference: str) -> OwnCode:
    """The function or class that a key names. Raises ConfigError."""
    path, name = path_and_name(reference)
    own = OwnCode(key, absolute(key, path), name)
    with naming_the_line(str(own)):
        names = vars(_module(own.path))
    if name not in names:
        raise own.error(f"the file has no {name}{did_you_mean(name, names)}")
    if not callable(names[name]):
        kind = type(names[name]).__name__
        raise own.error(f"it must be a function or a class, not {kind}")
    return replace(own, value=names[name])


def _module(path: Path) -> ModuleType:
    """The module of a user's file, executed once per content."""
    content = read_bytes(path, LARGEST)
    if path in _modules and _sources[path] == content:
        return _modules[path]
    _sources[path] = content
    # not the file's own name, which a module of Folio may have
    name = f"{path.stem}_{hashlib.sha256(f'{path}'.encode() + content).hexdigest()[:8]}"
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # dataclasses and compilers look it up
    code = compile(content, str(path), "exec")
    with _importable(path.parent):
        exec(code, vars(module))
    _modules[path] = module
    return module


@contextmanager
def naming_the_line(message: str) -> Iterator[None]:
    """Raises ConfigError with the message and the user's line for any error."""
    try:
        yield
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        reason = line_of(error) or f"{type(error).__name__}: {error}"
        raise ConfigError(f"{message}: {reason}") from error


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Makes the modules in a user's folder importable, instead of those in folders of others."""
    for name, file in list(_neighbors.items()):
        if folder not in file.parents:
            del sys.modules[name]
            del _neighbors[name]
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in sys.modules.keys() - before:
            file = Path(getattr(sys.modules[name], "__file__", None) or "")
            if is_of_user(name, file, folder):
                _neighbors[name] = file
                _sources[file] = file.read_bytes()


def is_of_user(name: str, file: Path, folder: Path) -> bool:
    """Whether a module lies in the user's folder: an environment inside of it is not the user's, nor
    are Folio's packages."""
    if folder not in file.parents:
        return False
    parts = list(file.relative_to(folder).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return parts == name.split(".") and (
        folder != ROOT.resolve() or parts[0] not in FOLIO
    )


def line_of(error: BaseException) -> str | None:
    """The last line of the user's code that an error has passed, such as `my.py, line 12:
    ValueError: ...`; None if there is none."""
    message: Any = error
    if isinstance(error, SyntaxError):
        places = [(error.filename or "", error.lineno)]
        message = error.msg
    else:
        frames = traceback.extract_tb(error.__traceback__)
        places = [(frame.filename, frame.lineno) for frame in reversed(frames)]
    if isinstance(error, AttributeError):
        message = f"{error}{did_you_mean(error.name or '', dir(error.obj))}"
    for file, number in places:
        if Path(file) in _sources:
            return (
                f"{Path(file).name}, line {number}: {type(error).__name__}: {message}"
            )
    return None


@contextmanager
def stopping_at_the_line() -> Iterator[None]:
    """Raises StoppedError with the user's line for an error of the user's code."""
    try:
        yield
    except (InputError, StoppedError, BrokenPipeError):
        raise
    except Exception as error:
        line = None if is_out_of_memory(error) else line_of(error)
        if line is None:
            raise
        raise StoppedError(line) from error


def keep(run: RunFolder, values: dict[str, Any], keys: list[str]) -> None:
    """Write a copy of the files that the values name, and of what these import, into the run. A
    resumed run has some already."""
    folders: list[Path] = []

    def note(_: str, path: Path) -> Path:
        if path.parent not in folders:
            folders.append(path.parent)
        return path

    replaced(values, keys, note)
    number = len([*run.code_path.glob("*/")])
    for folder in folders:
        files = {
            path: content
            for path, content in _sources.items()
            if folder in path.parents and run.code_path.resolve() not in path.parents
        }
        if any(str(path) not in run.code() for path in files):
            run.save_code(str(number), folder, files)
            number += 1


def unchanged_or_copied(
    config: dict[str, Any], keys: list[str], run: RunFolder, say: Callable[[str], None]
) -> dict[str, Any]:
    """The config of a run whose references lead to the user's files if these are unchanged, else to
    the run's copies."""
    copies = run.code()
    folder = run.code_path.resolve()
    changed = set[str]()  # the numbers of the folders in which a file has changed
    for path, facts in copies.items():
        copy = facts["copy"]
        state = _state(Path(path), facts["sha256"])
        if state:
            say(f"{path} {state} since the run began: using the copy {folder / copy}")
            changed.add(copy.partition("/")[0])

    def located(_: str, path: Path) -> Path:
        if str(path) not in copies:
            return path
        copy = copies[str(path)]["copy"]
        return folder / copy if copy.partition("/")[0] in changed else path

    return replaced(config, keys, located)


def _state(path: Path, sha256: str) -> str:
    """What has happened to a file that had this hash; empty if nothing has."""
    try:
        is_same = hashlib.sha256(path.read_bytes()).hexdigest() == sha256
    except OSError:
        return "is missing"
    return "" if is_same else "has changed"


def with_originals(
    values: dict[str, Any], keys: list[str], run: RunFolder
) -> dict[str, Any]:
    """The values with the paths of the user's files in place of those of the run's copies."""
    folder = run.code_path.resolve()
    originals = {
        folder / facts["copy"]: Path(path) for path, facts in run.code().items()
    }
    return replaced(values, keys, lambda _, path: originals.get(path, path))
