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
def kept_code(report: Callable[[str], None]) -> Iterator[None]:
    """Keeps compiled code beside the corpus between runs, unless the environment names another
    folder."""
    # the import takes seconds
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    set_for_kept_code()
    folder = (corpus.CACHE / "compiled").resolve()
    named = os.environ.get(CACHE_VARIABLE, default_cache_dir())

    with ExitStack() as stack:
        if named in (default_cache_dir(), str(folder)):
            try:
                stack.enter_context(filling(folder, report))
                os.environ[CACHE_VARIABLE] = str(folder)
            except OSError:  # the cache cannot be written
                os.environ[CACHE_VARIABLE] = default_cache_dir()
        yield


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
