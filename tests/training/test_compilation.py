import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from torch._inductor.runtime.cache_dir_utils import default_cache_dir

from tests.conftest import ROOT
from training.compilation import VARIABLE, compile_step


class Step:
    """Compiles by writing a file, as PyTorch does; what it finds there it takes for whole."""

    def compile(self, stages) -> None:
        program = Path(os.environ[VARIABLE]) / "program.so"
        if not program.exists():
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text("whole")
        if program.read_text() != "whole":
            raise ImportError("file too short")


KILLED = """
import os, sys, time
from pathlib import Path
from training.compilation import VARIABLE, compile_step

class Step:
    def compile(self, stages):
        program = Path(os.environ[VARIABLE]) / "program.so"
        program.parent.mkdir(parents=True)
        program.write_text("ha")
        print("compiling", flush=True)
        time.sleep(60)

compile_step(Step(), [])
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr("data.corpus.CACHE", tmp_path)
    monkeypatch.setenv("FOLIO_CACHE", str(tmp_path))
    monkeypatch.setenv(VARIABLE, default_cache_dir())
    return tmp_path


def test_what_was_compiled_is_kept(folder):
    compile_step(Step(), [])
    (folder / "compiled" / "other.so").write_text("of another model")
    compile_step(Step(), [])
    assert (folder / "compiled" / "other.so").exists()
    assert not list((folder / "compiling").glob("*.note"))


def test_what_a_killed_run_leaves_half_done_is_not_taken_for_whole(folder):
    process = subprocess.Popen([sys.executable, "-c", KILLED], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "compiling\n"
    with pytest.raises(ImportError):
        compile_step(Step(), [])  # while it lives, it is left alone
    process.send_signal(signal.SIGKILL)
    process.wait()
    compile_step(Step(), [])
    assert (folder / "compiled" / "program.so").read_text() == "whole"
    assert not list((folder / "compiling").glob("*.note"))


def test_a_folder_of_ones_own_is_used_and_never_cleared(folder, tmp_path_factory, monkeypatch):
    own = tmp_path_factory.mktemp("own")
    (own / "program.so").write_text("ha")
    monkeypatch.setenv(VARIABLE, str(own))
    for _ in range(2):
        with pytest.raises(ImportError):
            compile_step(Step(), [])
    assert (own / "program.so").read_text() == "ha"


def test_what_another_run_is_compiling_is_not_cleared(folder):
    """Even though a third one was killed while it did."""
    process = subprocess.Popen([sys.executable, "-c", KILLED], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "compiling\n"
    (folder / "compiling" / "dead.note").touch()
    with pytest.raises(ImportError):
        compile_step(Step(), [])
    assert (folder / "compiled" / "program.so").read_text() == "ha"
    process.kill()
    process.wait()


def test_a_run_that_has_just_ended_does_not_save_what_a_killed_one_left(folder, monkeypatch):
    """Its note is seen, and gone before it is looked at."""
    compile_step(Step(), [])
    (folder / "compiled" / "program.so").write_text("ha")
    (folder / "compiling" / "dead.note").touch()
    found = [folder / "compiling" / name for name in ("dead.note", "ended.note")]
    with monkeypatch.context() as patched:
        patched.setattr(Path, "glob", lambda self, pattern: found)
        compile_step(Step(), [])
    assert (folder / "compiled" / "program.so").read_text() == "whole"


def test_where_nothing_can_be_written_pytorchs_own_place_is_taken(folder, monkeypatch, tmp_path_factory):
    theirs = tmp_path_factory.mktemp("theirs")
    monkeypatch.setattr("torch._inductor.runtime.cache_dir_utils.default_cache_dir", lambda: str(theirs))
    monkeypatch.delenv(VARIABLE)
    (folder / "compiling").write_text("in the way")
    compile_step(Step(), [])
    assert not (folder / "compiled").exists()
    assert os.environ[VARIABLE] == str(theirs)
