"""`python finetune.py`, in process."""

import json
import re
import sys

import pytest

from finetune import main
from tests.trained.conftest import small_run
from trained import comparison
from trained.tasks import Task, from_csv


@pytest.fixture(scope="module")
def csv_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("task") / "animals.csv"
    rows = [f"the {'cat' if i % 2 else 'dog'} sat {i},{'cat' if i % 2 else 'dog'}" for i in range(40)]
    path.write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    return path


def finetuned(trained, *words) -> int:
    return main([str(trained.run.path), *map(str, words)])


def written(trained, settings) -> dict:
    (path,) = trained.run.path.glob(f"finetune-animals-????????-{settings}.json")
    return json.loads(path.read_text())


def test_the_models_and_the_baselines_are_compared(with_ngrams, csv_file, capsys, monkeypatch):
    monkeypatch.setattr("trained.classification.EPOCHS", 2)
    assert finetuned(with_ngrams, "--task", csv_file, "--seeds", 2) == 0
    output, progress = capsys.readouterr()
    assert "animals.csv: 28 texts for training, 12 for testing, 2 labels" in output
    assert re.search(r"both models need about \d+ (seconds|minutes)", output)
    results = written(with_ngrams, "seeds-2")
    scores = results["scores"]
    assert [len(rows) for rows in scores.values()] == [2, 2, 1, 1]
    assert scores["most frequent label"][0]["accuracy"] == 0.5
    assert scores["character n-grams"][0]["accuracy"] == 1.0
    gains = [a["accuracy"] - b["accuracy"] for a, b in zip(scores["pretrained"], scores["from scratch"], strict=True)]
    assert results["gain of pretraining"]["mean"] == pytest.approx(sum(gains) / 2)
    assert set(results["learning rates"]) == {"pretrained", "from scratch"}
    lines = [line.strip().split(":") for line in progress.splitlines()]
    assert [name.split(",")[:2] for name, _ in lines] == [
        [model, f" {step}"]
        for model in ("pretrained", "from scratch")
        for step in [*(f"learning rate {rate:g}" for rate in comparison.LEARNING_RATES), "seed 0", "seed 1"]
    ]
    seeds = [f" accuracy {row['accuracy']:.3f}" for row in scores["pretrained"]]
    assert [accuracy for name, accuracy in lines if name.startswith("pretrained, seed")] == seeds


@pytest.mark.parametrize(("cat", "counted"), [("cat", []), ("çät", ["16 of 220"])])
def test_cut_texts_and_characters_that_the_run_does_not_know_are_counted(plain, tmp_path, capsys, cat, counted):
    texts = [f"{' ' * i}{animal}" for i in range(8) for animal in (cat, "dog", "rat")]
    rows = ["text,label", *(f"{text},{text[-1]}" for text in texts), f"{' ' * 61}rats,t"]
    (tmp_path / "animals.csv").write_text("\n".join(rows), encoding="utf-8")
    assert finetuned(plain, "--task", tmp_path / "animals.csv", "--seeds", 1, "--freeze") == 0
    output = capsys.readouterr().out
    assert re.findall(r"^(.*) characters are not in the run's vocabulary", output, re.M) == counted
    assert "1 texts are longer than the run's windows: they are cut to 64 characters" in output


def test_no_setting_is_chosen_on_test_texts(plain, csv_file, monkeypatch):
    seen = []
    monkeypatch.setattr(comparison, "fine_tuned", lambda trained, model, task, rate, seed: seen.append(task))
    monkeypatch.setattr(comparison, "scores", lambda task, labels: {"accuracy": 0.0})
    task = from_csv(csv_file, 64)
    comparison.best_rate("pretrained", plain, plain.model, task)
    texts = {text for part in seen for text, _ in part.training + part.test}
    assert texts == {text for text, _ in task.training}


def test_only_a_difference_beyond_both_intervals_counts(capsys):
    task = Task("t", [], [(str(i), "ab"[i % 2]) for i in range(200)])
    truth, wrong = [label for _, label in task.test], ["c"] * 200
    good, bad = ([[*truth[:-n], *["c"] * n], [*["c"] * (n + 1), *truth[n + 1 :]]] for n in (5, 100))
    for pretrained, from_scratch, verdict, shown in (
        (good, bad, "pretraining helps", "over seeds"),
        (bad, good, "pretraining hurts", "over seeds"),
        (good, [truth, good[0]], "no clear effect", "over seeds"),
        ([truth], [wrong], "no verdict", "+1.000, no interval over seeds (only one), ± 0.000 over test texts"),
        ([truth] * 2, [truth] * 2, "no clear effect", "+0.000, ± 0.000 over seeds, ± 0.000 over test texts"),
    ):
        assert comparison.gain(task, pretrained, from_scratch)["verdict"] == verdict
        assert shown in capsys.readouterr().out


def test_a_frozen_encoder_is_probed_once_if_it_is_pretrained(plain, csv_file, monkeypatch):
    probed, of_model = [], comparison.probed
    monkeypatch.setattr(comparison, "probed", lambda *words: probed.append(words[1]) or of_model(*words))
    assert finetuned(plain, "--task", csv_file, "--seeds", 2, "--freeze") == 0
    assert len(probed) == 1 + 2
    results = written(plain, "frozen-seeds-2")
    assert results["frozen"] is True
    assert [row["accuracy"] for row in results["scores"]["pretrained"]] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--task", "speaker"], "speaker: "),  # the sentences have no headings
        (["--task", "missing.csv"], "cannot read missing.csv (No such file or directory): give a CSV file, or speaker"),
        (["--task", "speaker", "--seeds", "0"], "--seeds: 0 is out of range: it must be at least 1"),
        ([], "--task"),
    ],
)
def test_wrong_input_is_one_line(plain, capsys, words, message):
    assert finetuned(plain, *words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_other_architectures_are_refused(tmp_path, text_file, csv_file, capsys):
    keys = {"model__architecture": "labml_nn", "training__optimizer": "adamw"}
    trained = small_run(tmp_path / "run", text_file, training__max_steps=1, **keys)
    assert finetuned(trained, "--task", csv_file) == 2
    assert "model.architecture=labml_nn cannot be exported or fine-tuned" in capsys.readouterr().err


def test_a_missing_library_is_one_line(plain, csv_file, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    for name in [name for name in sys.modules if name.startswith(("sklearn.", "trained.baselines", "trained.comp"))]:
        monkeypatch.delitem(sys.modules, name)
    assert finetuned(plain, "--task", csv_file) == 2
    assert "pip install -r requirements-finetune.txt" in capsys.readouterr().err
