"""The folder of compiled code, and what happens without a compiler."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from torch._inductor.runtime.cache_dir_utils import default_cache_dir

from tests.conftest import ROOT
from training.compilation import CACHE_VARIABLE, _kept_code


def compile_program() -> str:
    """Compile by writing a file, as PyTorch does; an existing file is taken for whole."""
    with _kept_code():
        program = Path(os.environ[CACHE_VARIABLE]) / "program.so"
        if not program.exists():
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text("whole")
        if program.read_text() != "whole":
            raise ImportError("file too short")
        return program.read_text()


STUCK_IN_THE_MIDDLE = """
import os, time
from pathlib import Path
from training.compilation import CACHE_VARIABLE, _kept_code

with _kept_code():
    program = Path(os.environ[CACHE_VARIABLE]) / "program.so"
    program.parent.mkdir(parents=True)
    program.write_text("ha")
    print("compiling", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr("data.corpus.CACHE", tmp_path)
    monkeypatch.setenv("FOLIO_CACHE", str(tmp_path))
    monkeypatch.setenv(CACHE_VARIABLE, default_cache_dir())
    return tmp_path


def test_compiled_code_is_kept_between_runs(folder):
    compile_program()
    (folder / "compiled" / "other.so").write_text("of another model")
    compile_program()
    assert (folder / "compiled" / "other.so").exists()


def test_half_a_program_of_a_killed_run_is_removed_and_a_living_run_is_waited_for(folder):
    process = subprocess.Popen([sys.executable, "-c", STUCK_IN_THE_MIDDLE], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "compiling\n"
    results: list[str] = []
    waiting = threading.Thread(target=lambda: results.append(compile_program()))
    waiting.start()
    assert (folder / "compiled" / "program.so").read_text() == "ha"  # a living run's file is left alone
    process.kill()
    process.wait()
    waiting.join(timeout=60)
    assert results == ["whole"]


def test_a_failed_compilation_leaves_nothing_behind(folder):
    (folder / "compiled").mkdir()
    (folder / "compiled" / "program.so").write_text("ha")
    with pytest.raises(ImportError):
        compile_program()
    assert compile_program() == "whole"


def test_a_folder_that_the_user_chose_is_used_and_never_cleared(folder, tmp_path_factory, monkeypatch):
    own = tmp_path_factory.mktemp("own")
    (own / "program.so").write_text("ha")
    monkeypatch.setenv(CACHE_VARIABLE, str(own))
    for _ in range(2):
        with pytest.raises(ImportError):
            compile_program()
    assert (own / "program.so").read_text() == "ha"


def test_pytorchs_own_folder_is_used_if_the_cache_cannot_be_written(folder, monkeypatch, tmp_path_factory):
    theirs = tmp_path_factory.mktemp("theirs")
    monkeypatch.setattr("torch._inductor.runtime.cache_dir_utils.default_cache_dir", lambda: str(theirs))
    monkeypatch.delenv(CACHE_VARIABLE)
    (folder / "compiled.filling").mkdir()
    assert compile_program() == "whole"
    assert not (folder / "compiled").exists()
    assert os.environ[CACHE_VARIABLE] == str(theirs)


def test_training_goes_on_without_a_compiler(corpus_file, monkeypatch: pytest.MonkeyPatch, train):
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setattr("torch._inductor.config.cpp.cxx", ("no-such-compiler",))
    monkeypatch.setattr("torch._inductor.config.force_disable_caches", True)
    torch._dynamo.reset()
    trained = train(data__corpus=str(corpus_file), training__compile=True, training__max_steps=2)
    reports = [line for line in trained.heard.lines if "training without torch.compile" in line]
    assert len(reports) == 1
    assert "\n" not in reports[0]
    assert trained.heard.rows[-1]["step"] == 2
