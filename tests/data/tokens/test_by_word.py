"""Texts that are encoded word by word have the tokens that they have as a whole."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from data.tokens.by_word import is_by_word
from data.tokens.subwords import SubwordVocabulary, renumbered
from tests.data.tokens.test_subwords import BPE, BYTES, TEXT
from tests.tokenizers import gpt2, unigram, wordpiece


def vocabulary_of(tokenizer):
    return SubwordVocabulary(renumbered(json.loads(tokenizer.to_str())))


def plain_gpt2(text):
    """Without added tokens, which may hold spaces."""
    new = Tokenizer(models.BPE())
    new.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    new.model = Tokenizer.from_str(gpt2(text).to_str()).model
    return new


BY_WORD = {
    "bpe": BPE,
    "gpt2": vocabulary_of(plain_gpt2(TEXT)),
    "wordpiece": vocabulary_of(wordpiece(TEXT)),
}
texts = st.lists(st.text(st.sampled_from("ab 'é中\t\r\n\x85\u2028\x1c\u0301A.1\xad")))


@pytest.mark.parametrize("kind", BY_WORD)
@given(texts=texts)
def test_words_are_encoded_as_in_the_whole_text(kind, texts):
    vocabulary = BY_WORD[kind]

    assert is_by_word(vocabulary.tokenizer)

    whole = vocabulary._tokenizer.encode_batch(texts, add_special_tokens=False)

    assert [ids.tolist() for ids in vocabulary.encode_batch(texts)] == [
        encoding.ids for encoding in whole
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"normalizer": {"type": "NFC"}},
        {"pre_tokenizer": {"type": "Metaspace"}},
        {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True}},
        {"pre_tokenizer": None},
        {"added_tokens": [{"content": "a b"}]},
    ],
)
def test_tokenizers_that_look_beyond_words_get_whole_texts(change):
    assert not is_by_word(BPE.tokenizer | change)


def test_only_some_words_are_remembered(monkeypatch):
    monkeypatch.setattr("data.tokens.subwords.MOST_KNOWN", 10)
    vocabulary = SubwordVocabulary(BPE.tokenizer)
    texts = [TEXT[:500], "中" * 41, TEXT[500:1000], "the cat"]

    first = vocabulary.encode_batch(texts)
    again = [vocabulary.encode(text) for text in texts]

    assert [ids.tolist() for ids in first] == [ids.tolist() for ids in again]
    assert "中" * 41 not in vocabulary._known
    assert len(vocabulary._known) < 100


@pytest.mark.parametrize(
    "vocabulary", [BPE, BYTES, vocabulary_of(unigram(TEXT))], ids=lambda v: v.tokens
)
def test_a_batch_has_the_tokens_of_each_text(vocabulary):
    texts = ["the cat", "", "a dog\nran", "the cat"]
    batch = vocabulary.encode_batch(texts)

    assert [vocabulary.decode(ids) for ids in batch] == [
        vocabulary.decode(vocabulary.encode(text)) for text in texts
    ]
    assert len(batch[1]) == 0
