"""Classifiers that `finetune.py --save` writes are used by predict.py, transformers and
onnxruntime."""

import io
import json
import shutil
import sys
from itertools import product

import numpy as np
import onnxruntime
import pytest
import torch
import transformers

import evaluate
import export
import finetune
import predict
from tests.trained.conftest import csv_of_animals
from trained import model_card
from trained.saved_classifier import CLASSIFIER, load_classifier
from training.checkpoint import Content, load_checkpoint

AB = ("cat", "dog")
TEXTS = ["the cat sat on the mat.", "a dog", "the cat"]


def written(path, kind):
    """A CSV file: is the text about a cat or a dog, or, for characters, is each one a vowel?"""
    texts = [
        f"{('a', 'the')[i // 2 % 2]} {AB[i % 2]} sat {'on the mat'[: i % 9]}" for i in range(90)
    ]
    if kind == "texts":
        rows = ["text,label", *(f"{text},{text.split()[1]}" for text in texts)]
    else:
        rows = [
            "text,labels",
            *(f"{text},{''.join('-v'[c in 'aeiou'] for c in text)}" for text in texts),
        ]
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def folder(request, few_steps, trained, tmp_path_factory):
    """A classifier of a CSV file, saved."""
    file = written(tmp_path_factory.mktemp("csv") / "own.csv", request.param)
    path = tmp_path_factory.mktemp("saved") / "classifier"
    words = ["--task", str(file), "--labels", "24", "--draws", "1", "--save", str(path)]
    assert finetune.main([str(trained.run.path), *words]) == 0
    return path


of_both_kinds = pytest.mark.parametrize(
    ("folder", "trained"), [("texts", "plain"), ("characters", "with_ngrams")], indirect=True
)


@of_both_kinds
def test_predict_classifies_new_texts(folder, printed, capsys, monkeypatch):
    if load_classifier(folder).kind == "text":
        lines = printed(predict.main, folder, *TEXTS).splitlines()
        assert [line.split()[0] for line in lines] == ["cat", "dog", "cat"]
        found = json.loads(printed(predict.main, folder, "a dog", "--json", "--top", 9))
        assert [each["label"] for each in found["labels"]] == ["dog", "cat"]
        assert sum(each["probability"] for each in found["labels"]) == pytest.approx(1)
        monkeypatch.setattr(
            sys, "stdin", io.TextIOWrapper(io.BytesIO("the cat\n\na dög Ω\n".encode() + b"x" * 99))
        )
        assert predict.main([str(folder)]) == 0
        output = capsys.readouterr()
        # an empty line and unknown characters have a label too
        assert len(output.out.splitlines()) == 4
        assert "1 texts were cut to 64 characters" in output.err
        assert "1 texts are empty" in output.err
        assert "characters are not in the classifier's vocabulary" in output.err
    else:
        lines = [
            line.rsplit(maxsplit=2)[:2]
            for line in printed(predict.main, folder, "the cat").splitlines()
        ]
        assert lines[:2] == [["'th'", "-"], ["'e'", "v"]]
        found = json.loads(printed(predict.main, folder, "the cat", "--json"))
        pieces = [(piece["text"], piece["labels"][0]["label"]) for piece in found["pieces"]]
        assert pieces == [("th", "-"), ("e", "v"), (" c", "-"), ("a", "v"), ("t", "-")]


@of_both_kinds
def test_other_scripts_say_that_it_is_a_classifier(folder, refusal):
    assert "is a classifier: name a run" in refusal(evaluate.main, folder)


@of_both_kinds
def test_transformers_gives_the_same_labels(folder, tmp_path, capsys):
    assert export.main([str(folder), "--to", "huggingface", str(tmp_path / "model")]) == 0
    saved = load_classifier(folder)
    task = "text-classification"
    auto = transformers.AutoModelForSequenceClassification
    if saved.kind != "text":
        task = "token-classification"
        auto = transformers.AutoModelForTokenClassification
    model = auto.from_pretrained(tmp_path / "model", trust_remote_code=True).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    for side in ("left", "right"):
        inputs = tokenizer(TEXTS, padding=True, padding_side=side, return_tensors="pt")
        with torch.no_grad():
            theirs = model(**inputs).logits.softmax(-1)
        for ours, their, is_text in zip(
            saved.probabilities(TEXTS), theirs, inputs.attention_mask.bool(), strict=True
        ):
            assert torch.allclose(ours, their if their.ndim == 1 else their[is_text], atol=1e-5)
    classify = transformers.pipeline(task, str(tmp_path / "model"), trust_remote_code=True)
    found = classify("the cat")
    assert {each.get("label", each.get("entity")) for each in found} <= set(saved.labels)
    card = (tmp_path / "model" / "README.md").read_text()
    assert "Fine-tuned on labelled texts, `own.csv" in card
    assert "language: und\nlicense: other" in card  # a file of the user
    assert "labelled texts:\none draw of labels." in card
    assert f"Its own accuracy is {saved.results['first draw']:.3f}" in card
    assert card.count("before you publish") == 2  # its text, and that of the run


@of_both_kinds
def test_onnxruntime_gives_the_same_scores(folder, tmp_path, capsys):
    assert export.main([str(folder), "--to", "onnx", str(tmp_path / "model.onnx")]) == 0
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    saved = load_classifier(folder)
    assert json.loads(session.get_modelmeta().custom_metadata_map["labels"]) == saved.labels
    for text in TEXTS:
        ids = saved.vocabulary.encode(text)[None].numpy()
        (scores,) = session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})
        ours = saved.probabilities([text])[0]
        assert torch.allclose(
            torch.from_numpy(scores).view(-1, len(saved.labels)).softmax(-1), ours, atol=1e-5
        )


def changed(folder, copy, state, change_weights=lambda weights: None):
    """A copy of a classifier with other content, which matches its hash."""
    shutil.copytree(folder, copy)
    checkpoint = load_checkpoint(folder / CLASSIFIER)
    change_weights(checkpoint.weights)
    content = Content.of(checkpoint.weights, checkpoint.state | state)
    content.save(copy / CLASSIFIER)
    return copy


def results_with(**values):
    scores = {"probe": {"mean": 0.5, "margin": None}}
    results = {"labelled": 8, "test": 8, "draws": 1, "first draw": 0.5, "scores": scores}
    return {"results": results | values}


@pytest.mark.parametrize(("folder", "trained"), [("texts", "plain")], indirect=True)
@pytest.mark.parametrize(
    "state",
    [
        {"kind": "evil"},
        {"kind": ["text"]},
        {"kind": "pair"},
        {"task": None},
        {"labels": []},
        {"labels": "cat"},
        {"labels": ["cat", 3]},
        {"labels": ["cat", "\ud800"]},
        {"labels": ["cat", "dog", "cow"]},
        {"results": []},
        {"results": {}},
        results_with(labelled="many"),
        results_with(draws=None),
        results_with(ceiling="high"),
        results_with(scores=[0.5]),
        results_with(scores={"probe": {"mean": "high"}}),
        results_with(**{"first draw": [1]}),
    ],
)
def test_a_wrong_state_is_refused(folder, tmp_path, refusal, state):
    refusal(predict.main, changed(folder, tmp_path / "copy", state), "the cat")


@pytest.mark.parametrize(("folder", "trained"), [("texts", "plain")], indirect=True)
def test_weights_that_are_nan_are_refused(folder, tmp_path, refusal):
    copy = changed(
        folder, tmp_path / "copy", {}, lambda weights: weights["output.bias"].fill_(torch.nan)
    )
    assert "output.bias" in refusal(predict.main, copy, "the cat")


@pytest.mark.parametrize(("folder", "trained"), [("texts", "plain")], indirect=True)
def test_names_of_labels_cannot_command_a_terminal_or_a_page(folder, tmp_path, printed):
    labels = ["\x1b[31m\n", "<script>|"]
    copy = changed(folder, tmp_path / "copy", {"labels": labels})
    lines = printed(predict.main, copy, *TEXTS, "--top", 2).splitlines()
    assert len(lines) == len(TEXTS)
    assert all(r"\x1b[31m\n" in line for line in lines)
    card = model_card.card(load_classifier(copy))
    assert r"The labels are \\x1b\[31m\\n, \<script\>\|." in card


@pytest.mark.parametrize(("folder", "trained"), [("texts", "plain")], indirect=True)
def test_wrong_uses_are_one_line(folder, plain, tmp_path, refusal):
    file = csv_of_animals(tmp_path / "own.csv")
    for task, path, message in (
        (file, tmp_path, "exists already: choose another path"),
        ("all", tmp_path / "new", "--save keeps the classifier of one task"),
        (file, "/proc/x/y", "cannot write to /proc/x"),
    ):
        assert message in refusal(finetune.main, plain.run.path, "--task", task, "--save", path)
    line = refusal(export.main, folder, "--to", "csv", tmp_path / "x.csv")
    assert "is a classifier: use --to huggingface or --to onnx" in line
    (tmp_path / "damaged").mkdir()
    for path in folder.iterdir():
        (tmp_path / "damaged" / path.name).write_bytes(path.read_bytes()[:-9])
    refusal(predict.main, tmp_path / "damaged", "the cat")


@pytest.mark.parametrize("trained", ["plain"], indirect=True)
def test_pairs_are_two_texts_with_a_tab_between_them(trained, tmp_path, printed, refusal):
    rows = [
        f"the {a} sat {i},a {b} ran,{'same' if a == b else 'other'}"
        for i, a, b in product(range(12), AB, AB)
    ]
    (tmp_path / "own.csv").write_text("\n".join(["text_a,text_b,label", *rows]), encoding="utf-8")
    saved = tmp_path / "saved"
    words = ["--task", tmp_path / "own.csv", "--draws", 1, "--save", saved]
    output = printed(finetune.main, trained.run.path, *words)
    assert rf"is saved: printf 'TEXT\tTEXT\n' | python predict.py {saved}" in output
    output = printed(predict.main, saved, "the cat sat\ta cat ran", "the cat sat\ta dog ran")
    assert [line.split()[0] for line in output.splitlines()] == ["same", "other"]
    line = refusal(predict.main, saved, "the cat")
    assert "text 1: a pair is two texts with a tab between them" in line
    line = refusal(export.main, saved, "--to", "onnx", tmp_path / "x.onnx")
    assert "a classifier of pairs of texts cannot be exported" in line
