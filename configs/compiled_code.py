"""The folder of compiled code, which runs share."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from data import corpus
from runs.files import locked
from training.switches.compiler import set_for_kept_code

# names the folder in which PyTorch keeps compiled code
CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"


@contextmanager
def kept_code(report: Callable[[str], None], name: str = "") -> Iterator[None]:
    """Keeps compiled code beside the corpus between runs, unless the environment names another
    folder. `is_kept` knows the code by its `name`."""
    # the import takes seconds
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    set_for_kept_code()
    folder = code_folder(default_cache_dir())

    with ExitStack() as stack:
        if folder == own_folder():
            try:
                stack.enter_context(filling(folder, report))
            except OSError:  # the cache cannot be written
                folder = Path(default_cache_dir())
        os.environ[CACHE_VARIABLE] = str(folder)
        yield
        if name:
            mark_of(name, folder).parent.mkdir(parents=True, exist_ok=True)
            mark_of(name, folder).touch()


def own_folder() -> Path:
    return (corpus.CACHE / "compiled").resolve()


def code_folder(default: str = "") -> Path:
    """The folder that the environment names, unless it is PyTorch's `default`; else our own."""
    named = os.environ.get(CACHE_VARIABLE) or default
    return own_folder() if named == default else Path(named)


def mark_of(name: str, folder: Path) -> Path:
    """An empty file beside the code of a name."""
    return folder / "names" / name


def is_kept(name: str) -> bool:
    """Whether code was compiled under this name before; it is found in the folder, if nobody has
    deleted parts of it."""
    return mark_of(name, code_folder()).exists()


@contextmanager
def filling(folder: Path, report: Callable[[str], None]) -> Iterator[None]:
    """Locks a folder while the caller fills it, after other processes that do; empties it first if
    an earlier caller did not finish. Raises OSError if the folder cannot be locked."""
    with locked(folder.with_name(f"{folder.name}.filling"), report) as mark:
        mark.seek(0)
        if mark.read():
            shutil.rmtree(folder, ignore_errors=True)
        mark.write("x")
        mark.flush()
        yield
        mark.truncate(0)
