"""Vocabularies by `data.tokens`, and those of runs."""

import json

import pytest
import torch

from data.corpus import Corpus
from data.tokens.bpe import bpe, cache_path, train
from data.tokens.choose import load_vocabulary, share_lost, vocabulary_of
from data.tokens.subwords import renumbered
from data.vocabulary import Vocabulary
from tests.data.tokens.test_subwords import BPE, BYTES, TEXT

CHARACTERS = Vocabulary("abc", ("[PAD]", "[MASK]", "[UNK]"))


@pytest.mark.parametrize(
    "vocabulary", [CHARACTERS, BYTES, BPE], ids=["characters", "bytes", "bpe"]
)
def test_a_saved_vocabulary_is_the_same(vocabulary):
    again = load_vocabulary(json.loads(json.dumps(vocabulary.description())))
    assert type(again) is type(vocabulary)
    assert again.description() == vocabulary.description()
    assert again.surfaces == vocabulary.surfaces
    assert torch.equal(again.encode("abca"), vocabulary.encode("abca"))


def test_a_bpe_is_trained_once_on_the_training_part(session_cache):
    said = []
    corpus = Corpus.from_text("test", TEXT + "qqq " * (len(TEXT) // 36))
    first = bpe(corpus, 400, said.append)

    assert said == ["training a BPE of 400 tokens"]
    assert first == renumbered(train(corpus.training, 400))
    assert "qqq" not in first["model"]["vocab"]
    assert bpe(corpus, 400, said.append) == first
    assert len(said) == 1

    cache_path(corpus.sha256, 400).write_text("{")

    assert bpe(corpus, 400, said.append) == first


def test_a_text_with_few_pairs_has_fewer_tokens():
    said = []
    corpus = Corpus.from_text("test", "the cat sat. " * 50)
    vocabulary = vocabulary_of("bpe:5000", corpus, (), said.append)

    assert 256 < vocabulary.n_ordinary < 300
    assert f"only {vocabulary.n_ordinary} tokens" in said[-1]


@pytest.mark.parametrize(
    ("vocabulary", "text", "words"),
    [
        (CHARACTERS, "abcd" * 10, ["25.00% become [UNK]"]),
        (BPE, "any text, 中文", []),
        (BYTES, "any text, 中文", []),
    ],
)
def test_the_share_of_text_that_is_lost_is_told(vocabulary, text, words):
    said = share_lost(vocabulary, text)

    assert bool(said) == bool(words)
    assert all(each in said for each in words)
