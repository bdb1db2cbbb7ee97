"""Tokenizers by the names that users give: files, folders, and repositories on the Hub."""

import json

import pytest

from configs.command_line.command import parse
from data.text.sources import CorpusError
from data.tokens.subwords import SubwordVocabulary, read_tokenizer
from tests.conftest import SENTENCES
from tests.tokenizers import BERT_SPECIAL, saved, wordpiece

TEXT = "".join(SENTENCES) * 20
NAME = "somebody/small-bert"


def hub(folder, monkeypatch, *files):
    """The Hub's cache with a repository NAME, and no network."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    repository = folder / ("models--" + NAME.replace("/", "--"))
    snapshot = repository / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0123")
    for file in files:
        (snapshot / "tokenizer.json").write_bytes(file.read_bytes())


def test_a_folder_has_the_tokens_of_its_file(tmp_path, monkeypatch):
    path = saved(tmp_path, "wordpiece", TEXT)
    folder = tmp_path / "model"
    folder.mkdir()
    path.rename(folder / "tokenizer.json")
    monkeypatch.chdir(tmp_path)

    assert parse(["data.tokens=model"]).values["data.tokens"] == str(folder)
    assert read_tokenizer(folder) == read_tokenizer(folder / "tokenizer.json")


def test_a_folder_of_an_earlier_format_is_converted(tmp_path):
    vocab = wordpiece(TEXT).get_vocab()
    tokens = sorted(vocab, key=vocab.__getitem__)
    (tmp_path / "vocab.txt").write_text("\n".join(tokens))
    config = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))

    vocabulary = SubwordVocabulary(read_tokenizer(tmp_path))

    assert set(vocabulary.ordinary) == set(tokens) - set(BERT_SPECIAL)
    assert vocabulary.decode(vocabulary.encode("The cat sat!")) == " the cat sat!"


@pytest.mark.parametrize("model", [None, "bert", "roberta"])
def test_a_folder_without_a_tokenizer_is_one_line(tmp_path, model):
    if model:  # of which transformers would make an empty one
        (tmp_path / "config.json").write_text(json.dumps({"model_type": model}))

    with pytest.raises(CorpusError, match="has no tokenizer") as raised:
        read_tokenizer(tmp_path)

    assert str(raised.value).isprintable()


def test_a_name_on_the_hub_has_the_tokens_of_its_file(tmp_path, monkeypatch):
    path = saved(tmp_path, "wordpiece", TEXT)
    hub(tmp_path / "hub", monkeypatch, path)

    assert parse([f"data.tokens={NAME}"]).values["data.tokens"] == NAME
    assert read_tokenizer(NAME) == read_tokenizer(path)


def test_a_name_that_the_hub_does_not_have_is_one_line(tmp_path, monkeypatch):
    hub(tmp_path, monkeypatch)

    with pytest.raises(CorpusError, match=f"cannot get '{NAME}'") as raised:
        parse([f"data.tokens={NAME}"])

    assert str(raised.value).isprintable()
