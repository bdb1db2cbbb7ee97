"""The folder of compiled code, which runs share."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from data import corpus
from runs.files import locked

CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"  # names the folder in which PyTorch keeps compiled code
# PyTorch keeps no code in which autocast is switched, unless these functions are named with a
# version of their own.
AUTOCAST = {
    f"torch.amp.autocast_mode.{name}": "1" for name in ("_enter_autocast", "_exit_autocast")
}


@contextmanager
def kept_code(report: Callable[[str], None]) -> Iterator[None]:
    """Keeps compiled code beside the corpus between runs, unless the environment names another
    folder."""
    from torch._inductor import config

    # the import takes seconds
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    config.unsafe_marked_cacheable_functions = config.unsafe_marked_cacheable_functions | AUTOCAST
    if config.cpp.vec_isa_ok is None:
        # saves test programs for AVX, ten seconds; those for newer instructions remain
        config.cpp.vec_isa_ok = True

    folder = (corpus.CACHE / "compiled").resolve()
    with ExitStack() as stack:
        if os.environ.get(CACHE_VARIABLE, default_cache_dir()) in (
            default_cache_dir(),
            str(folder),
        ):
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
