"""`python finetune.py`, in process."""

import json
import sys

import pytest

from finetune import main


@pytest.fixture(scope="module")
def csv_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("task") / "animals.csv"
    rows = [f"the {'cat' if i % 2 else 'dog'} sat {i},{'cat' if i % 2 else 'dog'}" for i in range(40)]
    path.write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    return path


def finetuned(trained, *words) -> int:
    return main([str(trained.run.path), *map(str, words)])


def test_the_models_and_the_baselines_are_compared(with_ngrams, csv_file, capsys):
    assert finetuned(with_ngrams, "--task", csv_file, "--seeds", 2) == 0
    output = capsys.readouterr().out
    assert "animals.csv: 28 texts for training, 12 for testing, 2 labels" in output
    results = json.loads((with_ngrams.run.path / "finetune-animals.json").read_text())
    scores = results["scores"]
    assert [len(rows) for rows in scores.values()] == [2, 2, 1, 1]
    assert scores["most frequent label"][0]["accuracy"] == 0.5
    assert scores["character n-grams"][0]["accuracy"] == 1.0
    gains = [a["accuracy"] - b["accuracy"] for a, b in zip(scores["pretrained"], scores["from scratch"], strict=True)]
    assert results["gain of pretraining"]["accuracy"]["mean"] == pytest.approx(sum(gains) / 2)


def test_a_frozen_encoder_is_probed(plain, csv_file):
    assert finetuned(plain, "--task", csv_file, "--seeds", 1, "--freeze") == 0
    results = json.loads((plain.run.path / "finetune-animals-frozen.json").read_text())
    assert results["frozen"] is True
    assert results["scores"]["pretrained"][0]["accuracy"] == 1.0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--task", "speaker"], "speaker: "),  # the sentences have no headings
        (["--task", "missing.csv"], "No such file"),
        (["--task", "speaker", "--seeds", "0"], "--seeds 0 is below 1"),
        ([], "--task"),
    ],
)
def test_wrong_input_is_one_line(plain, capsys, words, message):
    assert finetuned(plain, *words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_a_missing_library_is_one_line(plain, csv_file, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    for name in [name for name in sys.modules if name.startswith(("sklearn.", "trained.baselines"))]:
        monkeypatch.delitem(sys.modules, name)
    assert finetuned(plain, "--task", csv_file) == 2
    assert "pip install -r requirements-finetune.txt" in capsys.readouterr().err
