"""`python export.py`, in process."""

import os
import stat
import sys

import pytest

from export import main
from tests.conftest import train_in


@pytest.fixture(scope="module")
def logs(tmp_path_factory, sentences):
    folder = tmp_path_factory.mktemp("logs")
    (folder / "text.txt").write_text(sentences, encoding="utf-8")
    trained = train_in(folder / "mlm" / "run", data__corpus=str(folder / "text.txt"), training__max_steps=2)
    trained.run.save_status("completed")
    return folder


def exported(logs, *words) -> int:
    return main(["last", "--to", *map(str, words), "--logs", str(logs)])


def test_the_path_is_printed_and_whole(logs, tmp_path, capsys):
    assert exported(logs, "csv", tmp_path / "new" / "rows.csv") == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "new" / "rows.csv")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["rows.csv"]


def test_a_failure_leaves_nothing(logs, tmp_path, monkeypatch):
    def broken(run, path):
        path.write_text("half")
        raise RuntimeError("no power")

    monkeypatch.setitem(main.__globals__["FORMATS"], "csv", broken)
    with pytest.raises(RuntimeError, match="no power"):
        exported(logs, "csv", tmp_path / "rows.csv")
    assert list(tmp_path.glob("*rows*")) == list(tmp_path.glob(".export*")) == []


def test_what_exists_is_never_replaced(logs, tmp_path, capsys):
    (tmp_path / "rows.csv").write_text("mine")
    assert exported(logs, "csv", tmp_path / "rows.csv") == 2
    assert "exists already" in capsys.readouterr().err
    assert (tmp_path / "rows.csv").read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pickle", "x"], "--to pickle: choose one of huggingface, onnx, tensorboard, wandb, csv"),
        (["csv", ""], "--to csv '' names no new file or folder: give its path"),
        (["csv", "/proc/x"], "cannot write /proc/x"),
    ],
)
def test_wrong_input_is_one_line(logs, capsys, words, message):
    assert exported(logs, *words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_every_file_has_the_usual_mode(logs, tmp_path, umask):
    before = os.umask(umask)
    try:
        assert exported(logs, "huggingface", tmp_path / "model") == 0
    finally:
        os.umask(before)
    files = [path for path in (tmp_path / "model").rglob("*") if path.is_file()]
    assert "model.safetensors" in {path.name for path in files}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o666 & ~umask}


@pytest.mark.parametrize(("name", "library"), [("huggingface", "tokenizers"), ("wandb", "wandb")])
def test_a_missing_library_is_one_line(logs, tmp_path, capsys, monkeypatch, name, library):
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, "trained.hugging_face", raising=False)
    monkeypatch.delattr("trained.hugging_face", raising=False)
    assert exported(logs, name, tmp_path / "x") == 2
    assert f"{library} is not installed: pip install -r requirements-export.txt" in capsys.readouterr().err
