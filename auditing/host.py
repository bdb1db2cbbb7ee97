"""The process of a target: imports it and serves calls to it through files of a folder.

`TargetProcess` starts this file by its path with Python's option -P, so the folder of the package
`auditing` is not on `sys.path`, and modules of the target's project are found under their own
names.
"""

import ctypes
import importlib
import importlib.util
import os
import shutil
import sys
import time
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGE = Path(__file__).parent


def main(service: str, target: str, folder: Path, audit: int) -> None:
    """Import `target`, then answer calls (name, arguments) until the audit ends.

    `service` is the module of `auditing` that knows how to call the target: the methods of its
    `Service(imported)` are called by name. Each answer is a result or a TargetError. The first one
    says whether the import worked. `audit` is the number of the audit's process.
    """
    process = os.getpid()
    if (
        sys.platform == "linux"
    ):  # orphans become children of this process, which can be found
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    import_as(
        "auditing", PACKAGE / "__init__.py", submodule_search_locations=[str(PACKAGE)]
    )
    from auditing.process import read, write

    served, answer = started(service, target)

    for number in count():
        if (
            os.getpid() != process
        ):  # a child that the target forked: it must not answer too
            os._exit(0)
        write(folder / f"answer-{number}", answer)
        question = folder / f"question-{number + 1}"
        wait_for(question, audit)
        name, arguments = read(question)
        answer = answer_of(served, name, arguments)


def started(service: str, target: str) -> tuple[Any, Exception | None]:
    """The service of the imported target, and the error if there is none."""
    from auditing.errors import TargetError, raised

    try:
        module = importlib.import_module(service)
        return module.Service(import_target(target)), None
    except TargetError as error:
        return None, error
    except BaseException as error:  # such as SystemExit: the target may do anything
        return None, TargetError(f"start failed: {raised(error)}")


def answer_of(served: Any, name: str, arguments: tuple[Any, ...]) -> Any:
    """The result of a method of the service, or a TargetError."""
    from auditing.errors import TargetError, raised

    try:
        return getattr(served, name)(*arguments)
    except TargetError as error:
        return error
    except BaseException as error:  # such as SystemExit: the target may do anything
        return TargetError(f"{name} failed: {raised(error)}")


def wait_for(path: Path, audit: int) -> None:
    """Wait until a file exists. Ends this process if the audit has ended, however it ended."""
    from auditing.process import pause

    began = time.monotonic()
    while not path.exists():
        if os.getppid() != audit:
            shutil.rmtree(path.parent, ignore_errors=True)
            sys.exit()
        time.sleep(pause(time.monotonic() - began))


def import_target(target: str) -> Any:
    """Import `module:name`, `file.py:name`, or, without a name, a whole module or file.

    The file's folder and the current folder come first on `sys.path`. Raises TargetError if the
    target is not found.
    """
    from auditing.errors import TargetError, raised

    place, _, name = target.rpartition(":") if ":" in target else (target, "", "")
    if "/" in place and not place.endswith(".py"):
        raise TargetError(
            f"{place!r} is not a Python file: TARGET is module:callable or file.py:callable"
        )

    sys.path.insert(0, str(Path.cwd()))

    try:
        found: Any = (
            import_file(Path(place))
            if place.endswith(".py")
            else importlib.import_module(place)
        )
    except BaseException as error:
        raise TargetError(f"cannot import {place!r}: {raised(error)}") from error

    for part in name.split(".") if name else ():
        if not hasattr(found, part):
            raise TargetError(
                f"{place!r} has no {name!r}: TARGET is module:callable or file.py:callable"
            )
        found = getattr(found, part)

    return found


def import_file(path: Path) -> ModuleType:
    """Import a file as a module of its own name, with its folder on `sys.path`."""
    path = path.resolve()
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    sys.path.insert(0, str(path.parent))
    return import_as(
        path.stem if path.stem not in sys.modules else f"target_{path.stem}", path
    )


def import_as(name: str, path: Path, **options: Any) -> ModuleType:
    """Import a file under a name."""
    spec = importlib.util.spec_from_file_location(name, path, **options)
    assert spec is not None
    assert spec.loader is not None
    # pickle finds classes there
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
