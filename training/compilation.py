"""Compiled training steps, kept between runs."""

import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from torch._inductor.runtime.cache_dir_utils import default_cache_dir

from data import corpus
from training.stages import Stage
from training.step import TrainingStep

PLACE = "TORCHINDUCTOR_CACHE_DIR"  # where PyTorch keeps what it compiles


def compile_step(step: TrainingStep, stages: Sequence[Stage]) -> None:
    """Compile a step for the shapes of all stages. Raises what torch.compile raises where it cannot work."""
    if os.environ.get(PLACE, default_cache_dir()) == default_cache_dir():  # nobody has chosen another one
        os.environ[PLACE] = str(corpus.CACHE / "compiled")
    with _noted(Path(os.environ[PLACE]), corpus.CACHE / "compiling"):
        step.compile(stages)


@contextmanager
def _noted(kept: Path, notes: Path) -> Iterator[None]:
    """Leave a note while something is compiled; where an earlier one was left behind, begin with nothing kept.

    A run that is killed while it compiles leaves half a program, which PyTorch takes for a whole one ever after: the
    runs that follow are slower, and not the same to the digit.
    """
    notes.mkdir(parents=True, exist_ok=True)
    left = [note for note in notes.iterdir() if _is_left_behind(note)]
    if left and kept.parent == notes.parent:  # a folder of somebody's own choice is not ours to clear
        shutil.rmtree(kept, ignore_errors=True)
    for note in left:
        note.unlink(missing_ok=True)
    note = notes / uuid.uuid4().hex
    with open(note, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # held until this process ends, however it does
        yield
        note.unlink()


def _is_left_behind(note: Path) -> bool:
    try:
        with open(note) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held by a run that compiles right now, or just gone
        return False
    return True
