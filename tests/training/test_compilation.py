import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from training.compilation import PLACE, compile_step


class Step:
    """Compiles by writing a file, as PyTorch does; what it finds there it takes for whole."""

    def compile(self, stages) -> None:
        import os

        program = Path(os.environ[PLACE]) / "program.so"
        if not program.exists():
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text("whole")
        if program.read_text() != "whole":
            raise ImportError("file too short")


KILLED = """
import os, sys, time
from pathlib import Path
from training.compilation import PLACE, compile_step

class Step:
    def compile(self, stages):
        program = Path(os.environ[PLACE]) / "program.so"
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
    monkeypatch.delenv(PLACE, raising=False)
    return tmp_path


def test_what_was_compiled_is_kept(folder):
    compile_step(Step(), [])
    (folder / "compiled" / "other.so").write_text("of another model")
    compile_step(Step(), [])
    assert (folder / "compiled" / "other.so").exists()
    assert not list((folder / "compiling").iterdir())


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
    assert not list((folder / "compiling").iterdir())


def test_a_folder_of_ones_own_is_used_and_never_cleared(folder, tmp_path_factory, monkeypatch):
    own = tmp_path_factory.mktemp("own")
    (own / "program.so").write_text("ha")
    monkeypatch.setenv(PLACE, str(own))
    for _ in range(2):
        with pytest.raises(ImportError):
            compile_step(Step(), [])
    assert (own / "program.so").read_text() == "ha"
