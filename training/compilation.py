"""Training steps made ready: compiled, which is kept between runs, and recorded as CUDA graphs."""

import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from data import corpus
from training.schedule import Stage
from training.step import TrainingStep

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"  # names the folder in which PyTorch keeps what it compiles


def compile_or_record(step: TrainingStep, stage: Stage, says: Callable[[str], None]) -> None:
    """Compile or record, whichever the next step of a stage still lacks; where that cannot work, say so."""
    if not step.is_compiled_for(stage):
        try_to_compile(step, [stage], says)
        return
    try:
        step.record(stage)
    except Exception as error:  # whatever PyTorch cannot record, training can go on without
        cause = error.__context__ or error  # the last one may say only that there was one before
        says(f"CUDA graphs do not work here, going on without them ({_first_line(cause)})")


def try_to_compile(step: TrainingStep, stages: Sequence[Stage], says: Callable[[str], None]) -> None:
    """Compile a step for the shapes of all stages, and say so; where that cannot work, say that it goes on without."""
    began = time.monotonic()
    says("compiling the training step (half a minute or more; training.compile=false does without)")
    try:
        compile_step(step, stages)
    except Exception as error:  # whatever a missing or broken compiler raises, training can go on without
        says(f"torch.compile does not work here, going on without it ({_first_line(error)})")
    else:
        says(f"compiled for {len(stages)} stages in {time.monotonic() - began:.0f} s")


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def compile_step(step: TrainingStep, stages: Sequence[Stage]) -> None:
    """Compile a step for the shapes of all stages. Raises what torch.compile raises where it cannot work.

    What is compiled is kept beside the corpus, unless the environment names another folder.
    """
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir  # takes seconds, not always needed

    kept = (corpus.CACHE / "compiled").resolve()
    if os.environ.get(VARIABLE, default_cache_dir()) not in (default_cache_dir(), str(kept)):
        step.compile(stages)
        return
    try:
        note = _note(kept)
    except OSError:  # nothing can be written there
        os.environ[VARIABLE] = default_cache_dir()
        step.compile(stages)
        return
    os.environ[VARIABLE] = str(kept)
    with note:
        step.compile(stages)  # where this fails the note stays, and the next run begins with nothing kept
        Path(note.name).unlink(missing_ok=True)


def _note(kept: Path) -> TextIO:
    """Leave a note that something is being compiled; where an earlier one was left behind, begin with nothing kept.

    A run that is killed while it compiles leaves half a program, which PyTorch takes for a whole one ever after: the
    runs that follow are slower, and not the same to the digit. A note is locked while its process lives. Raises
    OSError.
    """
    notes = kept.with_name("compiling")
    notes.mkdir(parents=True, exist_ok=True)
    with open(notes / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        owned = {note: _is_owned(note) for note in notes.glob("*.note")}
        left = [note for note, is_owned in owned.items() if is_owned is False]
        if left and not any(owned.values()):  # else another run compiles in there right now
            shutil.rmtree(kept, ignore_errors=True)
            for note in left:
                note.unlink(missing_ok=True)
        file = open(notes / f"{uuid.uuid4().hex}.note", "w")  # noqa: SIM115, it is open, and locked, while it compiles
        fcntl.flock(file, fcntl.LOCK_EX)
        return file


def _is_owned(note: Path) -> bool | None:
    """Whether the run that left it still compiles; None where it has just ended doing so."""
    try:
        with open(note) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return None
    return False
