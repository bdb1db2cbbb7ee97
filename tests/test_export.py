"""`python export.py`, in process."""

import sys

import pytest

from export import main
from tests.conftest import train_in


@pytest.fixture(scope="module")
def logs(tmp_path_factory, sentences):
    folder = tmp_path_factory.mktemp("logs")
    (folder / "text.txt").write_text(sentences, encoding="utf-8")
    train_in(folder / "mlm" / "run", data__corpus=str(folder / "text.txt"), training__max_steps=2)
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


def test_an_unknown_format_is_one_line(logs, tmp_path, capsys):
    assert exported(logs, "pickle", tmp_path / "x") == 2
    assert "choose one of huggingface, onnx, tensorboard, wandb, csv" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "library"), [("huggingface", "tokenizers"), ("wandb", "wandb")])
def test_a_missing_library_is_one_line(logs, tmp_path, capsys, monkeypatch, name, library):
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, "trained.hugging_face", raising=False)
    monkeypatch.delattr("trained.hugging_face", raising=False)
    assert exported(logs, name, tmp_path / "x") == 2
    assert f"needs {library}: pip install -r requirements-export.txt" in capsys.readouterr().err
