"""The process of a target: imports it and serves calls to it over a connection.

`TargetProcess` starts this file by its path with python's option -P, so Folio's root is not on
`sys.path`, and modules of the target's project are found under their own names even if Folio has
modules of the same name.
"""

import ctypes
import importlib
import importlib.util
import os
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = Path(__file__).parent


def main(service: str, target: str, descriptor: int) -> None:
    """Import `target`, then answer calls (name, arguments) until the connection closes.

    `service` is the module of `auditing` that knows what to do with the target: the methods of its
    `Service(imported)` are called by name. Each answer is a result or a TargetError. The first one
    says whether the import worked.
    """
    connection, process = Connection(descriptor), os.getpid()
    if (
        sys.platform == "linux"
    ):  # processes whose parents have ended become children of this one, which can be found
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    import_as("auditing", FOLDER / "__init__.py", submodule_search_locations=[str(FOLDER)])
    from auditing.errors import TargetError, raised

    served: Any = None
    name, arguments = "start", ()
    while True:
        try:
            if served is None:
                served, answer = (
                    importlib.import_module(service).Service(import_target(target)),
                    None,
                )
            else:
                answer = getattr(served, name)(*arguments)
        except TargetError as error:
            answer = error
        except BaseException as error:  # such as SystemExit: the target may do anything
            answer = TargetError(f"{name} failed: {raised(error)}")
        if os.getpid() != process:  # a child that the target forked: it must not answer too
            os._exit(0)
        try:
            connection.send(answer)
            name, arguments = connection.recv()
        except EOFError:
            return


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
            import_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
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
    return import_as(path.stem if path.stem not in sys.modules else f"target_{path.stem}", path)


def import_as(name: str, path: Path, **options: Any) -> ModuleType:
    """Import a file under a name."""
    spec = importlib.util.spec_from_file_location(name, path, **options)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)  # pickle finds classes there
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
