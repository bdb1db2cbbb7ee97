"""Characters, bytes, byte-level BPE and tokenizer.json files as tokens."""

import json

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from data.corpus import Corpus, CorpusError
from data.masking.words import WORD
from data.tokens.bpe import bpe, cache_path, train
from data.tokens.bytes import ByteVocabulary
from data.tokens.choose import load_vocabulary, vocabulary_of
from data.tokens.subwords import (
    CUT,
    SubwordVocabulary,
    TokensError,
    byte_alphabet,
    pieces_of,
    read_tokenizer,
    renumbered,
)
from data.vocabulary import Vocabulary, characters_of
from runs.terminal import printable
from tests.conftest import SENTENCES
from tests.tokenizers import BERT_SPECIAL, saved

any_text = st.text(st.characters(exclude_categories=["Cs"]))
TEXT = "".join(SENTENCES) * 20 + "Zürich, 中文 isn't far.\n\n  O  King's cat?\n" * 5
BPE = SubwordVocabulary(renumbered(train(TEXT, 300)))
BYTES = ByteVocabulary()
spaced_text = st.text(st.sampled_from("ab 'é中\t\r\n\x85\u2028\x1c.1"))


@given(any_text)
@pytest.mark.parametrize("kind", ["characters", "bytes", "bpe"])
def test_any_text_comes_back(kind, text):
    vocabulary = {"characters": Vocabulary(f"{text}a"), "bytes": BYTES, "bpe": BPE}[kind]
    ids = vocabulary.encode(text)
    assert vocabulary.decode(ids) == text
    assert ids.dtype == torch.int64
    assert bool((ids < vocabulary.n_ordinary).all())
    assert len(text) == (len(ids) if kind == "characters" else vocabulary.lengths[ids].sum())


@settings(max_examples=300)
@given(spaced_text)
@example("a\n\nb")
@example("a \n  b\nc")
def test_a_text_may_be_encoded_in_pieces(text):
    pieces = list(pieces_of(text, 0))
    assert "".join(pieces) == text
    assert len(pieces) == len(CUT.findall(text)) + 1
    assert (
        torch.cat([BPE.encode(piece) for piece in pieces]).tolist()
        == BPE._tokenizer.encode(text).ids
    )


def test_a_long_text_is_encoded_as_a_whole_one(monkeypatch):
    whole = BPE._tokenizer.encode(TEXT).ids
    monkeypatch.setattr("data.tokens.subwords.PIECE", 10)
    assert len(list(pieces_of(TEXT, 10))) > 30
    assert BPE.encode(TEXT).tolist() == whole


@given(any_text)
@pytest.mark.parametrize("vocabulary", [BYTES, BPE], ids=["bytes", "bpe"])
def test_a_token_belongs_to_its_first_visible_character(vocabulary, text):
    """By an independent computation: the bytes of the tokens are laid over those of the text."""
    ids = vocabulary.encode(text)
    found, offsets = vocabulary.text_of(ids, "")
    assert found == text
    char_of_byte = [i for i, character in enumerate(text) for _ in character.encode()]
    begin = 0
    for i, offset in zip(ids.tolist(), offsets.tolist(), strict=True):
        inside = range(begin, begin + len(vocabulary.surfaces[i]))
        begins = [
            char_of_byte[byte]
            for byte in inside
            if byte == 0 or char_of_byte[byte - 1] < char_of_byte[byte]
        ]
        visible = [char for char in begins if not text[char].isspace()]
        if begins and begins[0] == char_of_byte[begin]:
            assert offset == (visible or begins)[0]
        else:
            assert offset == char_of_byte[begin]  # it begins inside a character
        begin = inside.stop


def test_offsets_fit_the_text_of_broken_utf8():
    # a, two thirds of a character, b, no UTF-8, é
    ids = torch.tensor([0x61, 0xE4, 0xB8, 0x62, 0xFF, 0xC3, 0xA9])
    text, offsets = BYTES.text_of(ids, "")
    assert text == "a\ufffd\ufffdb\ufffdé"
    assert offsets.tolist() == [0, 1, 2, 3, 4, 5, 5]


def test_a_space_belongs_to_the_word_after_it():
    text = "Come in, O King!\n"
    ids = BPE.encode(text)
    _, offsets = BPE.text_of(ids, text)
    of_words = {span for match in WORD.finditer(text) for span in range(*match.span())}
    for i, offset in zip(ids.tolist(), offsets.tolist(), strict=True):
        assert (offset in of_words) == any(character.isalpha() for character in BPE.decode([i]))


@pytest.mark.parametrize(
    ("name", "text", "shown", "has_unknown"),
    [
        ("wordpiece", "The cat sat! Ω", " the cat sat!\ufffd", True),
        ("unigram", "the cat sat! Ω", " the cat sat! \ufffd", True),
        ("gpt2", "The  cat Ω <|endoftext|>", "The  cat Ω <|endoftext|>", False),
    ],
)
def test_a_file_keeps_its_tokens_under_new_ids(tmp_path, name, text, shown, has_unknown):
    path = saved(tmp_path, name, TEXT)
    content, theirs = read_tokenizer(path), Tokenizer.from_file(str(path))
    assert renumbered(content) == content  # new ids are given once
    vocabulary = SubwordVocabulary(content)
    theirs.no_truncation()
    assert vocabulary.decode(vocabulary.encode(text)) == shown
    assert vocabulary.special_tokens == ["[PAD]", "[MASK]", *(["[UNK]"] if has_unknown else [])]
    by_id = [token for token, _ in sorted(theirs.get_vocab().items(), key=lambda item: item[1])]
    special = {*BERT_SPECIAL, "<s>", "</s>", "<unk>", "<|endoftext|>"}
    assert vocabulary.ordinary == [token for token in by_id if token not in special]
    expected = theirs.encode(text.replace("<|endoftext|>", ""), add_special_tokens=False).tokens
    names = [*vocabulary.ordinary, *vocabulary.special_tokens]
    found = [names[i] for i in vocabulary.encode(text.replace("<|endoftext|>", "")).tolist()]
    assert found == [{"<unk>": "[UNK]", "Ω": "[UNK]"}.get(token, token) for token in expected]


def test_special_names_in_the_text_are_text():
    assert BPE.decode(BPE.encode("a [MASK] b")) == "a [MASK] b"
    assert BPE.mask_token not in BPE.encode("a [MASK] b").tolist()
    with pytest.raises(TokensError, match=r"reads \[PAD\] or \[MASK\]"):
        SubwordVocabulary(_whole_words(["a", "[MASK]", "b"])).encode("a [MASK] b")
    with pytest.raises(TokensError, match="cannot encode the text"):
        SubwordVocabulary(_whole_words(["a", "b"])).encode("a c")  # without [UNK]


def _whole_words(words: list[str]) -> dict:
    model = {
        "type": "WordLevel",
        "vocab": {word: i for i, word in enumerate(words)},
        "unk_token": "[UNK]",
    }
    return renumbered(
        {"added_tokens": [], "model": model, "pre_tokenizer": {"type": "WhitespaceSplit"}}
    )


def test_the_byte_alphabet_is_that_of_tokenizers():
    assert BPE.surfaces[BPE.id_of("Ġthe")] == b" the"
    assert set(byte_alphabet()) <= set(BPE.ordinary)


@pytest.mark.parametrize(
    "vocabulary",
    [Vocabulary("abc", ("[PAD]", "[MASK]", "[UNK]")), BYTES, BPE],
    ids=["characters", "bytes", "bpe"],
)
def test_a_saved_vocabulary_is_the_same(vocabulary):
    again = load_vocabulary(json.loads(json.dumps(vocabulary.description())))
    assert type(again) is type(vocabulary)
    assert again.ordinary == vocabulary.ordinary
    assert again.surfaces == vocabulary.surfaces
    assert again.special_tokens == vocabulary.special_tokens
    assert torch.equal(again.encode("abca"), vocabulary.encode("abca"))


def test_a_vocabulary_of_earlier_versions_loads():
    loaded = load_vocabulary({"characters": ["a", "b"], "special_tokens": ["[PAD]", "[MASK]"]})
    assert loaded.encode("ba").tolist() == [1, 0]
    assert (loaded.padding_token, loaded.mask_token, loaded.unknown_token) == (2, 3, None)


def test_pairs_have_their_special_tokens():
    corpus = Corpus.from_text("test", TEXT)
    for tokens in ("bytes", "bpe:260"):
        vocabulary = vocabulary_of(tokens, corpus, ("[CLS]", "[SEP]"), print)
        assert [
            vocabulary.id_of(token) - vocabulary.n_ordinary for token in ("[PAD]", "[CLS]", "[SEP]")
        ] == [0, 2, 3]


def test_a_bpe_is_trained_once_on_the_training_part(session_cache):
    said: list[str] = []
    corpus = Corpus.from_text("test", TEXT + "qqq " * (len(TEXT) // 36))
    first = bpe(corpus, 400, said.append)
    assert said == ["training a BPE of 400 tokens"]
    assert bpe(corpus, 400, said.append) == first == renumbered(train(corpus.training, 400))
    assert len(said) == 1
    assert "qqq" not in first["model"]["vocab"]
    cache_path(corpus.sha256, 400).write_text("{")
    assert bpe(corpus, 400, said.append) == first


def test_a_text_with_few_pairs_has_fewer_tokens():
    said: list[str] = []
    vocabulary = vocabulary_of(
        "bpe:5000", Corpus.from_text("test", "the cat sat. " * 50), (), said.append
    )
    assert 256 < vocabulary.n_ordinary < 300
    assert f"only {vocabulary.n_ordinary} tokens" in said[-1]


def test_rare_characters_become_unknown():
    corpus = Corpus.from_text("test", "aaaabbbb" * 20 + "cc" + "d" * 38)
    vocabulary = characters_of(corpus.counts, "", 0.02, ())
    assert vocabulary.characters == ["a", "b", "d"]
    assert vocabulary.unknown_token == 5
    assert vocabulary.encode("abcΩ").tolist() == [0, 1, 5, 5]
    assert vocabulary.decode(vocabulary.encode("abc")) == "ab\ufffd"
    # none is unknown
    assert characters_of(corpus.counts, "c", 0.02, ()).special_tokens == ["[PAD]", "[MASK]"]
    assert characters_of(corpus.counts, "", 0.0, ()).characters == ["a", "b", "c", "d"]
    with pytest.raises(CorpusError, match="no character has such a share"):
        characters_of(corpus.counts, "", 0.9, ())


def test_too_many_characters_are_refused_in_one_line():
    corpus = Corpus.from_text("test", "a" * 1_000_000 + "".join(map(chr, range(0x3400, 0xD800))))
    with pytest.raises(
        CorpusError, match=r"41,985 different characters are too many .* data.unknown_below=1e-5"
    ):
        characters_of(corpus.counts, "", 0.0, ())
    assert characters_of(corpus.counts, "", 1e-5, ()).n_tokens == 4


def test_ids_are_the_sorted_characters_then_the_special_tokens():
    vocabulary = Vocabulary("b\na")
    assert vocabulary.encode("\nab").tolist() == [0, 1, 2]
    assert vocabulary.encode("").tolist() == []
    assert (vocabulary.n_ordinary, vocabulary.n_tokens) == (3, 5)
    assert vocabulary.decode([vocabulary.padding_token, vocabulary.mask_token]) == "[PAD][MASK]"
    assert vocabulary.description() == {
        "characters": ["\n", "a", "b"],
        "special_tokens": ["[PAD]", "[MASK]"],
    }


@pytest.mark.parametrize("unknown", ["X", "\U0001f600", "`", "\ud800"])
def test_the_first_unknown_character_is_named(unknown):
    with pytest.raises(ValueError, match="is not in the vocabulary") as error:
        Vocabulary("abc").encode(f"ab{unknown}Y")
    assert repr(unknown) in str(error.value)


def test_printable_escapes_control_characters_and_nothing_else():
    assert printable("\x1b[2J a\tb\n\x00\x7f\x9b\r") == "\\x1b[2J a\tb\n\\x00\\x7f\\x9b\\r"
    assert printable("plain: é, ö, 中, 🎭, \u00a0") == "plain: é, ö, 中, 🎭, \u00a0"
    assert printable("\ud800").isprintable()
