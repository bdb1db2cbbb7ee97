"""Your own code by reference: `file.py:name` as the value of a key.

docs/own_code.md has an example of each kind. A run keeps a copy of each file that it uses, and of
the modules that the file imports from its own folder.
"""

import hashlib
import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from configs.branch import is_reference
from configs.keys import ConfigError, shortened
from runs.errors import InputError
from runs.reading import read_bytes
from runs.run_folder import RunFolder

LARGEST = 1_000_000  # bytes of a file

_modules: dict[Path, ModuleType] = {}
_sources: dict[Path, bytes] = {}  # of the user's files, and of what they import from their folders


def path_and_name(reference: str) -> tuple[Path, str]:
    path, _, name = reference.rpartition(":")
    return Path(path), name


def replaced(
    values: Mapping[str, Any], keys: Iterable[str], function: Callable[[str, Path], Path]
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

    return dict(values) | {key: new(key, values[key]) for key in keys if key in values}


def absolute(key: str, path: Path) -> Path:
    """The absolute path of a user's file. Raises ConfigError if there is no such file."""
    try:
        file = path.expanduser().resolve()
        if not file.is_file():
            raise FileNotFoundError(2, "No such file")
    except (OSError, RuntimeError) as error:  # RuntimeError: ~unknown_user, a loop of links
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{key}: cannot read {shortened(path)} ({reason})") from error
    return file


@dataclass(frozen=True)
class OwnCode:
    """A function or class of the user, with the key that names it."""

    key: str
    path: Path
    name: str
    value: Any

    def __call__(self, *arguments: Any) -> Any:
        """Call it. Raises ConfigError with the user's line for any error."""
        self.check_signature(self.value, len(arguments))
        with _naming_the_line(self.key, self.path):
            return self.value(*arguments)

    def check_signature(self, function: Any, n_arguments: int, name: str = "") -> None:
        """Raise ConfigError if a function cannot be called with this number of arguments."""
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):  # a function in C has none
            return
        try:
            signature.bind(*range(n_arguments))
        except TypeError as error:
            words = f"{n_arguments} argument{'s' if n_arguments != 1 else ''}"
            raise self.error(f"{name or self.name} must take {words} ({error})") from error

    @contextmanager
    def checked(self, contract: str) -> Iterator[None]:
        """Raises ConfigError with the contract and the user's line for any error."""
        try:
            with _importable(self.path.parent):
                yield
        except InputError:
            raise
        except Exception as error:
            reason = line_of(error) or f"{type(error).__name__}: {error}"
            raise self.error(f"{contract}, but raises {reason}") from error

    def error(self, message: str) -> ConfigError:
        return ConfigError(f"{self.key}={self.path}:{self.name}: {message}")


def load(key: str, reference: str) -> OwnCode:
    """The function or class that a key names. Raises ConfigError."""
    path, name = path_and_name(reference)
    path = absolute(key, path)
    names = vars(_module(key, path))
    if name not in names:
        near = get_close_matches(name, names, 1)
        hint = f": did you mean {near[0]}?" if near else ""
        raise ConfigError(f"{key}: {path} has no {name}{hint}")
    if not callable(names[name]):
        raise ConfigError(f"{key}: {name} in {path} is neither a function nor a class")
    return OwnCode(key, path, name, names[name])


def _module(key: str, path: Path) -> ModuleType:
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
    with _naming_the_line(key, path):
        exec(compile(content, str(path), "exec"), vars(module))
    _modules[path] = module
    return module


@contextmanager
def _naming_the_line(key: str, path: Path) -> Iterator[None]:
    try:
        with _importable(path.parent):
            yield
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        reason = line_of(error) or f"{path.name}: {type(error).__name__}: {error}"
        raise ConfigError(f"{key}: {reason}") from error


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Makes the modules in a user's folder importable, instead of those in folders of others."""
    for name, path in list(_imported()):
        if folder not in path.parents:
            del sys.modules[name]
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in sys.modules.keys() - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file and folder in Path(file).parents and Path(file) not in _sources:
                _sources[Path(file)] = Path(file).read_bytes()


def _imported() -> Iterator[tuple[str, Path]]:
    """The modules that users' files have imported from their folders."""
    for name, module in sys.modules.items():
        file = getattr(module, "__file__", None)
        if file and Path(file) in _sources and Path(file) not in _modules:
            yield name, Path(file)


def line_of(error: BaseException) -> str | None:
    """The last line of the user's code that an error has passed, such as `my.py, line 12:
    ValueError: ...`; None if there is none."""
    if isinstance(error, SyntaxError):
        places = [(error.filename or "", error.lineno)]
    else:
        places = [
            (frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)
        ]
    for file, number in reversed(places):
        if Path(file) in _sources:
            message = error.msg if isinstance(error, SyntaxError) else error
            return f"{Path(file).name}, line {number}: {type(error).__name__}: {message}"
    return None


def keep(run: RunFolder, values: Mapping[str, Any], keys: Iterable[str]) -> None:
    """Write a copy of the files that the values name, and of what these import, into the run."""
    folders: dict[Path, None] = {}

    def note(_: str, path: Path) -> Path:
        folders[path.parent] = None
        return path

    replaced(values, keys, note)
    copies = {}
    for number, folder in enumerate(folders):
        for path, content in _sources.items():
            if folder in path.parents:
                copies[path] = (f"{number}/{path.relative_to(folder).as_posix()}", content)
    run.save_code(copies)


def unchanged_or_copied(
    config: Mapping[str, Any], keys: Iterable[str], run: RunFolder, say: Callable[[str], None]
) -> dict[str, Any]:
    """The config of a run whose references lead to the user's files if these are unchanged, else to
    the run's copies."""
    copies = run.code()
    folder = run.code_path.absolute()
    copied: set[Path] = set()

    def located(key: str, path: Path) -> Path:
        if str(path) not in copies:
            return path
        name = copies[str(path)]["copy"]
        changed = [other for other, facts in copies.items() if _has_changed(other, name, facts)]
        if not changed:
            return path
        if path not in copied:
            state = "has changed" if Path(changed[0]).is_file() else "is missing"
            say(f"{changed[0]} {state} since the run began: using the copy {folder / name}")
            copied.add(path)
        return folder / name

    return replaced(config, keys, located)


def with_originals(
    values: Mapping[str, Any], keys: Iterable[str], run: RunFolder
) -> dict[str, Any]:
    """The values with the paths of the user's files in place of those of the run's copies."""
    folder = run.code_path.absolute()
    originals = {folder / facts["copy"]: Path(path) for path, facts in run.code().items()}
    return replaced(values, keys, lambda key, path: originals.get(path, path))


def _has_changed(path: str, name: str, facts: Mapping[str, str]) -> bool:
    """Whether a file, of the same folder as the file whose copy is `name`, has changed."""
    if facts["copy"].partition("/")[0] != name.partition("/")[0]:
        return False
    try:
        content = Path(path).read_bytes()
    except OSError:
        return True
    return hashlib.sha256(content).hexdigest() != facts["sha256"]
