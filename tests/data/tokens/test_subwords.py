"""Tokens of byte-level BPE and of tokenizer.json files."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from data.tokens.bpe import train
from data.tokens.bytes import ByteVocabulary
from data.tokens.subwords import (
    CUT,
    SubwordVocabulary,
    TokensError,
    pieces_of,
    read_tokenizer,
    renumbered,
)
from data.tokens.surfaces import byte_alphabet
from tests.conftest import SENTENCES
from tests.tokenizers import BERT_SPECIAL, saved

TEXT = "".join(SENTENCES) * 20 + "Zürich, 中文 isn't far.\n\n  O  King's cat?\n" * 5
BPE = SubwordVocabulary(renumbered(train(TEXT, 300)))
BYTES = ByteVocabulary()


@given(st.text(st.sampled_from("ab 'é中\t\r\n\x85\u2028\x1c.1")))
@example("a\n\nb")
@example("a \n  b\nc")
def test_a_text_may_be_encoded_in_pieces(text):
    pieces = list(pieces_of(text, 0))
    assert "".join(pieces) == text
    assert len(pieces) == len(CUT.findall(text)) + 1

    ids = torch.cat([BPE.encode(piece) for piece in pieces])

    assert ids.tolist() == BPE._tokenizer.encode(text).ids


def test_a_long_text_is_encoded_as_a_whole_one(monkeypatch):
    whole = BPE._tokenizer.encode(TEXT).ids
    monkeypatch.setattr("data.tokens.subwords.PIECE", 10)

    assert len(list(pieces_of(TEXT, 10))) > 30
    assert BPE.encode(TEXT).tolist() == whole


SPECIAL = {*BERT_SPECIAL, "<s>", "</s>", "<unk>", "<|endoftext|>"}


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("wordpiece", "The cat sat! Ω", " the cat sat!\ufffd"),
        ("unigram", "the cat sat! Ω", " the cat sat! \ufffd"),
        ("gpt2", "The  cat Ω <|endoftext|>", "The  cat Ω <|endoftext|>"),
    ],
)
def test_a_file_keeps_its_tokens_under_new_ids(tmp_path, name, text, shown):
    path = saved(tmp_path, name, TEXT)
    content = read_tokenizer(path)

    assert renumbered(content) == content  # new ids are given once

    vocabulary = SubwordVocabulary(content)

    assert vocabulary.decode(vocabulary.encode(text)) == shown
    assert ("[UNK]" in vocabulary.special_tokens) == ("\ufffd" in shown)

    theirs = Tokenizer.from_file(str(path))
    theirs.no_truncation()
    id_of = theirs.get_vocab()

    assert vocabulary.ordinary == sorted(id_of.keys() - SPECIAL, key=id_of.__getitem__)

    text = text.removesuffix("<|endoftext|>")
    tokens = theirs.encode(text, add_special_tokens=False).tokens
    unknown = {"<unk>", "Ω"} - set(vocabulary.ordinary)

    expected = ["[UNK]" if token in unknown else token for token in tokens]

    assert vocabulary.encode(text).tolist() == list(map(vocabulary.id_of, expected))


def test_special_names_in_the_text_are_text():
    assert BPE.decode(BPE.encode("a [MASK] b")) == "a [MASK] b"
    assert BPE.mask_token not in BPE.encode("a [MASK] b").tolist()


@pytest.mark.parametrize(
    ("words", "text", "message"),
    [
        (["a", "[MASK]", "b"], "a [MASK] b", r"reads \[PAD\] or \[MASK\]"),
        (["a", "b"], "a c", "cannot encode the text"),  # without [UNK]
    ],
)
def test_a_text_that_a_tokenizer_cannot_read_is_refused(words, text, message):
    vocab = {word: i for i, word in enumerate(words)}
    model = {"type": "WordLevel", "vocab": vocab, "unk_token": "[UNK]"}
    content = {
        "added_tokens": [],
        "model": model,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
    }

    with pytest.raises(TokensError, match=message):
        SubwordVocabulary(renumbered(content)).encode(text)


def test_the_byte_alphabet_is_that_of_tokenizers():
    assert BPE.surfaces[BPE.id_of("Ġthe")] == b" the"
    assert set(byte_alphabet()) <= set(BPE.ordinary)
