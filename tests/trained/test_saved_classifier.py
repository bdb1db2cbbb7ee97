"""Classifiers that `finetune.py --save` writes are used by predict.py, transformers and
onnxruntime."""

import json
import re
import shutil
import sys
from dataclasses import replace
from itertools import product

import onnxruntime
import pytest
import torch
import transformers

import evaluate
import export
import finetune
import predict
from model import modeling_folio
from tests.conftest import written
from tests.trained.conftest import csv_of_animals
from trained import classifier, model_card
from trained.saved_classifier import CLASSIFIER, load_classifier
from training.checkpoint import Content, load_checkpoint

AB = ("cat", "dog")
TEXTS = ["the cat sat on the mat.", "a dog", "the cat"]


def csv_of(path, kind):
    """A CSV file: is the text about a cat or a dog, or, for characters, is each one a vowel?"""
    rows = ["text,label" if kind == "texts" else "text,labels"]
    for i in range(90):
        animal = AB[i % 2]
        text = f"{('a', 'the')[i // 2 % 2]} {animal} sat {'on the mat'[: i % 9]}"
        label = (
            animal
            if kind == "texts"
            else re.sub("[^v]", "-", re.sub("[aeiou]", "v", text))
        )
        rows.append(f"{text},{label}")

    return written(path, "\n".join(rows))


@pytest.fixture(scope="module")
def folder(request, few_steps, trained, tmp_path_factory):
    """A classifier of a CSV file, saved."""
    file = csv_of(tmp_path_factory.mktemp("csv") / "own.csv", request.param)
    path = tmp_path_factory.mktemp("saved") / "classifier"
    words = ["--task", str(file), "--labels", "24", "--draws", "1", "--save", str(path)]

    assert finetune.main([str(trained.run.path), *words]) == 0

    return path


def of(*kinds):
    return pytest.mark.parametrize(("folder", "trained"), kinds, indirect=True)


OF_TEXTS = ("texts", "plain")
OF_CHARACTERS = ("characters", "with_ngrams")
of_texts = of(OF_TEXTS)
of_characters = of(OF_CHARACTERS)
of_both_kinds = of(OF_TEXTS, OF_CHARACTERS)


@of_texts
def test_predict_labels_texts(folder, printed):
    lines = printed(predict.main, folder, *TEXTS).splitlines()

    assert [line.split()[0] for line in lines] == ["cat", "dog", "cat"]

    result = json.loads(printed(predict.main, folder, "a dog", "--json", "--top", 9))
    assert [each["label"] for each in result["labels"]] == ["dog", "cat"]
    assert sum(each["probability"] for each in result["labels"]) == pytest.approx(1)


@of_texts
def test_texts_of_standard_input_all_have_a_label(folder, piped, capsys):
    """Empty lines and unknown characters too."""
    piped("the cat\n\na dög Ω\n".encode() + b"x" * 99)

    assert predict.main([str(folder)]) == 0

    output = capsys.readouterr()
    assert len(output.out.splitlines()) == 4
    assert "1 texts were read in windows of 64 characters" in output.err
    assert "1 texts are empty" in output.err
    assert "characters are not in the classifier's vocabulary" in output.err


@of_texts
def test_rows_of_a_table_have_a_label(folder, printed, piped):
    """A text with line breaks is one text."""
    piped(b'n,text\n1,the cat\n2,"a dog\nline two"\n')
    header, first, second, last = printed(
        predict.main, folder, "--column", "text"
    ).splitlines()

    assert header == "n,text,prediction,probability"
    assert re.fullmatch(r"1,the cat,cat,0\.\d+|1,the cat,cat,1.0", first)
    assert second == '2,"a dog'
    assert last.startswith('line two",')

    piped(rb'{"a":{"text":"a dog\nline two"}}')
    row = json.loads(printed(predict.main, folder, "--column", "a.text"))

    assert row["a"] == {"text": "a dog\nline two"}
    assert row["prediction"] == last.split(",")[1]


@of_texts
def test_a_line_is_one_text(folder, printed, piped):
    line = rb"a dog\nsat \\n"
    piped(line)
    (label,) = printed(predict.main, folder, "--json").splitlines()

    assert json.loads(label)["text"] == "a dog\nsat \\n"
    assert printed(predict.main, folder, "--json", "a dog\nsat \\n") == label + "\n"

    piped(line)
    raw = json.loads(printed(predict.main, folder, "--json", "--raw"))

    assert raw["text"] == line.decode()


@of_texts
@pytest.mark.parametrize("option", ["--score", "--unknown"])
def test_options_of_runs_are_refused(folder, refusal, option):
    assert option in refusal(predict.main, folder, "a", option)


@of_characters
def test_rows_of_a_table_have_labelled_pieces(folder, printed, piped):
    piped(b'{"text": "the cat"}')
    row = json.loads(printed(predict.main, folder, "--column", "text"))

    assert [piece["text"] for piece in row["prediction"]] == ["th", "e", " c", "a", "t"]


@of_characters
def test_predict_labels_the_pieces_of_texts(folder, printed):
    lines = printed(predict.main, folder, "the cat").splitlines()

    assert lines[0].startswith("'th'  - ")
    assert lines[1].startswith("'e'  v ")

    result = json.loads(printed(predict.main, folder, "the cat", "--json"))
    pieces = [
        (piece["text"], piece["labels"][0]["label"]) for piece in result["pieces"]
    ]

    assert pieces == [("th", "-"), ("e", "v"), (" c", "-"), ("a", "v"), ("t", "-")]


@of_texts
def test_other_scripts_say_that_it_is_a_classifier(folder, refusal):
    assert "is a classifier: name a run" in refusal(evaluate.main, folder)


@of_texts
def test_ngrams_are_saved_beside_the_model(folder, tmp_path, refusal, monkeypatch):
    """They are those that were learned, and they count."""
    saved = load_classifier(folder)
    alone = replace(saved, ngrams=None).probabilities(TEXTS)
    both = torch.cat(saved.probabilities(TEXTS))
    of_ngrams = saved.ngrams.scores(TEXTS)

    assert of_ngrams.argmax(1).tolist() == [0, 1, 0]

    mean = saved.ngrams.beside(torch.cat(alone).log(), saved.weight, of_ngrams)
    assert torch.allclose(both, mean.softmax(1), atol=1e-5)
    assert not torch.allclose(both, torch.cat(alone).double(), atol=1e-3)

    state = saved.ngrams.state() | {"weight": None}
    assert "ngrams" in refusal(
        predict.main, changed(folder, tmp_path, {"ngrams": state}), "the cat"
    )

    monkeypatch.setitem(sys.modules, "trained.ngrams", None)
    assert "requirements-finetune.txt" in refusal(predict.main, folder, "the cat")


@of_both_kinds
def test_transformers_gives_the_same_labels(folder, tmp_path, capsys):
    assert (
        export.main([str(folder), "--to", "huggingface", str(tmp_path / "model")]) == 0
    )

    saved = load_classifier(folder)
    task = "text-classification"
    auto = transformers.AutoModelForSequenceClassification
    if saved.kind != "text":
        task = "token-classification"
        auto = transformers.AutoModelForTokenClassification

    model = auto.from_pretrained(tmp_path / "model", trust_remote_code=True).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")

    # the export has no n-grams
    ours = torch.cat(replace(saved, ngrams=None).probabilities(TEXTS))
    for side in ("left", "right"):
        inputs = tokenizer(TEXTS, padding=True, padding_side=side, return_tensors="pt")
        with torch.no_grad():
            theirs = model(**inputs).logits.softmax(-1)

        if theirs.ndim == 3:
            theirs = theirs[inputs.attention_mask.bool()]

        assert torch.allclose(ours, theirs, atol=1e-5)

    classify = transformers.pipeline(
        task, str(tmp_path / "model"), trust_remote_code=True
    )
    labels = {each.get("label", each.get("entity")) for each in classify("the cat")}

    assert labels <= set(saved.labels)

    card = (tmp_path / "model" / "README.md").read_text()
    assert "Fine-tuned on labelled texts, `own.csv" in card
    assert "language: und\nlicense: other" in card  # a file of the user
    assert "labelled texts: one draw of labels." in card
    assert f"Its own accuracy is {saved.results['first draw']:.3f}" in card
    assert card.count("before you publish") == 2  # its text, and that of the run


@of(OF_TEXTS, pytest.param(*OF_CHARACTERS, marks=pytest.mark.slow))
def test_an_onnx_file_has_the_labels(folder, tmp_path, capsys):
    """The export itself compares the scores of the file with those of the classifier."""
    file = tmp_path / "model.onnx"

    assert export.main([str(folder), "--to", "onnx", str(file)]) == 0

    metadata = onnxruntime.InferenceSession(file).get_modelmeta().custom_metadata_map
    assert json.loads(metadata["labels"]) == load_classifier(folder).labels


def test_a_classifier_of_many_tokens_reads_no_surprise(plain, tmp_path, monkeypatch):
    """The export compares the scores of both implementations."""
    monkeypatch.setattr(classifier, "LARGEST_ALPHABET", 8)
    monkeypatch.setattr(
        modeling_folio.FolioForTokenClassification, "largest_alphabet", 8
    )
    rows = [f"{AB[i % 2]} {i},{AB[i % 2]}" for i in range(40)]
    saved = saved_from(plain, tmp_path, "text,label", rows)
    n_features = load_classifier(saved).classifier.n_features

    assert n_features == plain.values["model.d_model"] * (
        plain.values["model.n_layers"] + 1
    )
    assert export.main([str(saved), "--to", "huggingface", str(tmp_path / "x")]) == 0


def changed(folder, tmp_path, state, bias=0.0):
    """A copy of a classifier with other content, which matches its hash."""
    copy = shutil.copytree(folder, tmp_path / "copy")
    checkpoint = load_checkpoint(folder / CLASSIFIER)
    checkpoint.weights["output.bias"] += bias
    content = Content.of(checkpoint.weights, checkpoint.state | state)
    content.save(copy / CLASSIFIER)
    return copy


SCORES = {"probe": {"mean": 0.5, "margin": None}}
RESULTS = {"labelled": 8, "test": 8, "draws": 1, "first draw": 0.5, "scores": SCORES}


@of_texts
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kind", "evil"),
        ("kind", "pair"),
        ("task", None),
        ("labels", []),
        ("labels", ["cat", "\ud800"]),
        ("labels", ["cat", "dog", "cow"]),
        ("results", RESULTS | {"labelled": "many"}),
        ("results", RESULTS | {"draws": None}),
        ("results", RESULTS | {"ceiling": "high"}),
        ("results", RESULTS | {"first draw": [1]}),
        ("results", RESULTS | {"scores": {"probe": {"mean": "high"}}}),
    ],
)
def test_a_wrong_state_is_refused(folder, tmp_path, refusal, key, value):
    refusal(predict.main, changed(folder, tmp_path, {key: value}), "the cat")


@of_texts
def test_weights_that_are_nan_are_refused(folder, tmp_path, refusal):
    copy = changed(folder, tmp_path, {}, bias=torch.nan)
    assert "output.bias" in refusal(predict.main, copy, "the cat")


@of_texts
def test_names_of_labels_cannot_command_a_terminal_or_a_page(folder, tmp_path, printed):
    labels = ["\x1b[31m\n", "<script>|"]
    copy = changed(folder, tmp_path, {"labels": labels})
    lines = printed(predict.main, copy, *TEXTS, "--top", 2).splitlines()

    assert len(lines) == len(TEXTS)
    assert all(r"\x1b[31m\n" in line for line in lines)

    card = model_card.card(load_classifier(copy))
    assert r"The labels are \\x1b\[31m\\n, \<script\>\|." in card


@of_texts
def test_wrong_uses_are_one_line(folder, plain, tmp_path, refusal):
    file = csv_of_animals(tmp_path / "own.csv")
    for task, path in (
        (file, tmp_path),
        ("all", tmp_path / "new"),
        (file, "/proc/x/y"),
    ):
        line = refusal(finetune.main, plain.run.path, "--task", task, "--save", path)
        assert "--save" in line

    line = refusal(export.main, folder, "--to", "csv", tmp_path / "x.csv")

    assert "is a classifier: use --to huggingface or --to onnx" in line


@of_texts
def test_damaged_files_are_refused(folder, tmp_path, refusal):
    copy = shutil.copytree(folder, tmp_path / "damaged")
    for path in copy.iterdir():
        path.write_bytes(path.read_bytes()[:-9])

    refusal(predict.main, copy, "the cat")


@pytest.mark.parametrize("trained", ["plain"], indirect=True)
def test_pairs_are_two_texts_with_a_tab_between_them(
    trained, tmp_path, printed, refusal, piped
):
    rows = ["text_a,text_b,label"]
    for i, a, b in product(range(12), AB, AB):
        rows.append(f"the {a} sat {i},a {b} ran,{'same' if a == b else 'other'}")

    file = written(tmp_path / "own.csv", "\n".join(rows))
    saved = tmp_path / "saved"
    words = ["--task", file, "--draws", 1, "--save", saved]

    output = printed(finetune.main, trained.run.path, *words)

    assert rf"is saved: printf 'TEXT\tTEXT\n' | python predict.py {saved}" in output

    output = printed(
        predict.main, saved, "the cat sat\ta cat ran", "the cat sat\ta dog ran"
    )
    assert [line.split()[0] for line in output.splitlines()] == ["same", "other"]

    assert "text 1: a pair is two texts" in refusal(predict.main, saved, "the cat")

    piped(b"a,b\nthe cat sat,a cat ran\n")
    output = printed(predict.main, saved, "--column", "a", "--column", "b")

    assert output.splitlines()[1].startswith("the cat sat,a cat ran,same,")
    assert "--column" in refusal(predict.main, saved, "--column", "a")

    refusal(export.main, saved, "--to", "onnx", tmp_path / "x.onnx")


def saved_from(trained, tmp_path, header, rows):
    """A classifier of the rows of a table."""
    file = written(tmp_path / "own.csv", "\n".join([header, *rows]))
    words = ["--task", str(file), "--draws", "1", "--save", str(tmp_path / "saved")]
    assert finetune.main([str(trained.run.path), *words]) == 0
    return tmp_path / "saved"


@pytest.mark.parametrize("trained", ["plain", "bpe"], indirect=True)
def test_words_have_tags(few_steps, trained, tmp_path, printed, refusal, piped, capsys):
    tag_of = {"the": "O", "sat": "O", "cat": "B-CAT", "dog": "B-DOG", "big": "O"}
    rows = []
    for i, animals in product(range(8), product(("cat", "dog", "big cat"), repeat=2)):
        text = f"the {animals[0]} sat{' the' * (i % 2)} {animals[1]}"
        tags = [tag_of[word] for word in text.split()]
        rows.append(f"{text}{' sat' * i},{' '.join(tags)}{' O' * i}")
    saved = saved_from(trained, tmp_path, "text,tags", rows)

    assert "entities, whose words and type are right" in capsys.readouterr().out

    texts = ["the  cat\tsat big dog", "", "dog"]
    lines = printed(predict.main, saved, *texts).splitlines()

    assert [len(line.split()) for line in lines] == [5, 0, 1]
    assert {*" ".join(lines).split()} <= {*tag_of.values()}

    result = json.loads(printed(predict.main, saved, texts[0], "--json"))
    assert [each["text"] for each in result["pieces"]] == texts[0].split()

    piped(b"text\nthe cat sat\n")
    header, row = printed(predict.main, saved, "--column", "text").splitlines()
    (line,) = printed(predict.main, saved, "the cat sat").splitlines()

    assert header == "text,prediction"
    assert row == f"the cat sat,{line}"
    assert "of words" in refusal(export.main, saved, "--to", "onnx", tmp_path / "x")


def test_several_labels_are_predicted(plain, tmp_path, printed, refusal, piped):
    labels = ("", "cat", "dog", "cat|dog")
    rows = []
    for i, names in product(range(12), labels):
        rows.append(f"the {' and the '.join(names.split('|'))} sat {i},{names}")
    saved = saved_from(plain, tmp_path, "text,labels", rows)
    texts = ("the cat sat 3", "the cat and the dog sat 3", "the  sat 3")
    lines = printed(predict.main, saved, *texts).splitlines()

    assert [re.findall("cat|dog", line) for line in lines[:1]] == [["cat"]]
    assert set(re.findall("cat|dog", lines[1])) == {"cat", "dog"}
    assert lines[2] == ""

    (all_of_them,) = printed(predict.main, saved, texts[2], "--top", 9).splitlines()
    assert set(re.findall("cat|dog", all_of_them)) == {"cat", "dog"}

    piped(b"text\nthe cat sat 3\n")
    output = printed(predict.main, saved, "--column", "text")

    assert output.splitlines() == ["text,prediction", "the cat sat 3,cat"]
    assert "several labels" in refusal(
        export.main, saved, "--to", "onnx", tmp_path / "x"
    )


def test_numbers_are_predicted(plain, tmp_path, printed, piped):
    rows = []
    for i, n in product(range(12), range(4)):
        rows.append(
            f"the{' cat' * n}{' dog' * (4 - n)} sat {'on the mat'[: i % 9]}{i},{n}.5"
        )
    saved = saved_from(plain, tmp_path, "text,number", rows)
    texts = ["the cat cat cat dog sat", "the dog dog dog dog sat"]
    many, none = map(float, printed(predict.main, saved, *texts).splitlines())

    assert many > none + 1

    piped(json.dumps({"text": texts[0]}).encode())
    row = json.loads(printed(predict.main, saved, "--column", "text"))

    assert row["prediction"] == pytest.approx(many)
