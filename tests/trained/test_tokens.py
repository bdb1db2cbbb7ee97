"""What is done with a trained run, for tokens that are not characters."""

import io
import json
import sys

import numpy as np
import onnxruntime
import pytest
import torch
import transformers

import evaluate
import finetune
import predict
from configs.keys import ConfigError
from runs.run_folder import RunFolderError
from tests.tokenizers import saved
from tests.trained.conftest import small_run
from trained import hugging_face, onnx_file
from trained.fill import encode
from trained.inside import nearest_characters
from trained.load import load_trained

KINDS = ["bytes", "bpe", "wordpiece", "unigram", "unknown"]
EXTRA = "Zürich, 中文 and Zoë.\n"


@pytest.fixture(scope="module", params=KINDS)
def trained(request, tmp_path_factory, sentences):
    """A run of each kind of tokens; `unknown` has characters and [UNK]."""
    folder = tmp_path_factory.mktemp(request.param)
    lines = [line + (EXTRA if i % 20 == 0 else "") for i, line in enumerate(sentences.splitlines(True))]
    (folder / "text.txt").write_text("".join(lines), encoding="utf-8")
    keys = {"data__tokens": {"bytes": "bytes", "bpe": "bpe:280"}.get(request.param, "characters")}
    if request.param in ("wordpiece", "unigram"):
        keys["data__tokens"] = str(saved(folder, request.param, sentences[:2_000]))
    if request.param == "unknown":
        keys["data__unknown_below"] = 0.003
    ngrams = {"model__ngrams": 2, "model__ngram_rows": 1_000} if request.param != "bytes" else {}
    return small_run(folder / "run", folder / "text.txt", **keys, **ngrams)


def test_the_tokens_are_those_of_training(trained):
    again = load_trained(str(trained.run.path))
    assert again.vocabulary.description() == trained.run.vocabulary()
    assert again.data().vocabulary is again.vocabulary
    assert (again.vocabulary.unknown_token is not None) == ("[UNK]" in trained.vocabulary.special_tokens)


def test_blanks_are_tokens(trained, capsys):
    path = str(trained.run.path)
    assert predict.main([path, "the _ sat on", "--top", "2", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    (blank,) = result["blanks"]
    name = "character" if trained.vocabulary.tokens == "characters" else "token"
    first = blank["candidates"][0][name]
    assert result["text"][blank["offset"] : blank["offset"] + len(first)] == first
    assert len(blank["candidates"]) == 2
    assert predict.main([path, "the __ sat", "Zoë _"]) == 0
    assert capsys.readouterr().out.count("\n") >= 2
    ids = encode(r"the _\_[MASK]", trained)
    assert (ids == trained.vocabulary.mask_token).sum() == 2


def test_lines_stay_lines(trained, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the mat_\na dog ran_____\n")))
    assert predict.main([str(trained.run.path)]) == 0
    assert capsys.readouterr().out.count("\n") == 2


def test_a_long_text_is_refused_in_tokens(trained, capsys):
    assert predict.main([str(trained.run.path), "_" * 65]) == 2
    assert "the run was trained on at most 64" in capsys.readouterr().err


def test_it_is_measured(trained, capsys):
    assert evaluate.main([str(trained.run.path)]) == 0
    output, results = capsys.readouterr().out, json.loads((trained.run.path / "evaluation.json").read_text())
    assert "counting does not apply" in output
    assert "counting" not in results
    assert (trained.run.path / "evaluation.png").exists()
    best = min(trained.run.metrics(), key=lambda row: row["loss.valid"])
    assert results["loss.valid"] == pytest.approx(best["loss.valid"], abs=1e-6)
    if trained.vocabulary.tokens == "characters":
        assert "  per character " not in output
    else:
        assert results["bits_per_character"] == pytest.approx(best["bits_per_character"], abs=1e-6)
        assert f"{results['bits_per_character']:.4f} bits" in output


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / "model"
    hugging_face.export(trained, folder)
    return folder


def test_transformers_gives_the_same_ids(trained, exported):
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    for text in ("the cat sat on the mat.\nCome in, O King!\n", EXTRA, "why do the birds sing?"):
        ids = trained.vocabulary.encode(text)
        assert tokenizer(text)["input_ids"] == ids.tolist()
    if trained.vocabulary.tokens in ("bytes", "characters"):
        assert tokenizer.decode(tokenizer("the cat\n sat")["input_ids"]) == "the cat\n sat"
    assert tokenizer.mask_token_id == trained.vocabulary.mask_token
    assert tokenizer.pad_token_id == trained.vocabulary.padding_token
    unknown = trained.vocabulary.unknown_token
    assert unknown is None or tokenizer.unk_token_id == unknown


def test_transformers_gives_the_same_logits(trained, exported):
    model = transformers.AutoModelForMaskedLM.from_pretrained(exported, trust_remote_code=True).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    batch = tokenizer("the cat[MASK] sat on the mat. Zoë", return_tensors="pt")
    assert (batch["input_ids"] == trained.vocabulary.mask_token).sum() == 1
    with torch.no_grad():
        logits = model(**batch).logits[0, :, : trained.vocabulary.n_tokens]
        assert torch.allclose(logits, trained.model(batch["input_ids"]), atol=1e-4)


def test_fill_mask_fills(trained, exported):
    fill = transformers.pipeline("fill-mask", str(exported), trust_remote_code=True, top_k=1)
    (guess,) = fill("the cat[MASK] sat on the mat.")
    assert 0 <= guess["token"] < trained.vocabulary.n_ordinary


def test_onnx_gives_the_same_logits(trained, tmp_path):
    onnx_file.export(trained, tmp_path / "model.onnx")  # checks the logits
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    metadata = session.get_modelmeta().custom_metadata_map
    assert json.loads(metadata["vocabulary"]) == trained.run.vocabulary()
    ids = trained.vocabulary.encode("the cat")[None].numpy()
    logits = session.run(None, {"input_ids": ids})[0]
    assert np.allclose(logits[0], trained.model(torch.from_numpy(ids)).detach().numpy(), atol=1e-4)


def test_it_is_fine_tuned(trained, tmp_path, capsys):
    rows = [f"the {'cat' if i % 2 else 'dog'} sat {i} Ω,{'cat' if i % 2 else 'dog'}" for i in range(40)]
    (tmp_path / "animals.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    words = ["--task", str(tmp_path / "animals.csv"), "--seeds", "1", "--freeze"]
    assert finetune.main([str(trained.run.path), *words]) == 0
    output = capsys.readouterr().out
    assert "28 texts for training" in output
    assert ("both models read them as [UNK]" in output) == (trained.vocabulary.tokens == "characters")


def test_characters_are_compared_with_characters_only(trained):
    if trained.vocabulary.tokens == "characters":
        assert set(nearest_characters(trained.model, trained.vocabulary)) == set(trained.vocabulary.characters)
        return
    with pytest.raises(ConfigError, match="nearest_characters compares characters"):
        nearest_characters(trained.model, trained.vocabulary)


def test_a_damaged_vocabulary_is_one_line(trained, tmp_path):
    path, content = trained.run.vocabulary_path, trained.run.vocabulary_path.read_text()
    damaged = {"tokenizer": {"model": 3}} if trained.vocabulary.tokens == "subwords" else {"special_tokens": 3}
    try:
        path.write_text(json.dumps(json.loads(content) | damaged))
        with pytest.raises(RunFolderError, match=r"vocabulary\.json is damaged") as error:
            load_trained(str(trained.run.path))
        assert "\n" not in str(error.value)
    finally:
        path.write_text(content)


def test_runs_with_different_tokens_compare_per_character(tmp_path, text_file, capsys):
    runs = [
        small_run(tmp_path / kind, text_file, data__tokens=tokens, training__max_steps=2)
        for kind, tokens in {"a": "characters", "b": "bytes", "c": "bpe:270"}.items()
    ]
    assert evaluate.main([str(trained.run.path) for trained in runs]) == 0
    output = capsys.readouterr().out
    lines = output[output.index("side by side") :].splitlines()
    assert "no verdict" in lines[0]
    rows = [trained.run.metrics() for trained in runs]
    losses = [min(row.get("loss.valid_per_character", row["loss.valid"]) for row in each) for each in rows]
    assert [float(line.split()[1]) for line in lines[1:]] == pytest.approx(losses, abs=1e-4)
    assert [float(line.split()[3]) for line in lines[1:]] == pytest.approx(np.divide(losses, np.log(2)), abs=1e-4)
