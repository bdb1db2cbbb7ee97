"""Tokens that are pieces of UTF-8."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data.masking.words import WORD
from data.tokens.bytes import ByteVocabulary
from data.vocabulary import Vocabulary
from tests.data.tokens.test_subwords import BPE, BYTES

any_text = st.text(st.characters(exclude_categories=["Cs"]))
each_vocabulary = pytest.mark.parametrize(
    "vocabulary", [BYTES, BPE], ids=["bytes", "bpe"]
)


@each_vocabulary
@given(text=any_text)
def test_any_text_comes_back(vocabulary, text):
    ids = vocabulary.encode(text)
    assert vocabulary.decode(ids) == text
    assert ids.dtype == torch.int64
    assert bool((ids < vocabulary.n_ordinary).all())
    assert len(text) == vocabulary.lengths[ids].sum()


@each_vocabulary
@given(text=any_text)
def test_a_token_belongs_to_its_first_visible_character(vocabulary, text):
    """By an independent computation: the bytes of the tokens are laid over those of the text."""
    ids = vocabulary.encode(text)
    decoded, offsets = vocabulary.text_of(ids)

    assert decoded == text

    char_of_byte = []
    for i, character in enumerate(text):
        char_of_byte += [i] * len(character.encode())

    begin = 0
    for i, offset in zip(ids.tolist(), offsets.tolist(), strict=True):
        end = begin + len(vocabulary.surfaces[i])
        first = char_of_byte[begin]
        if begin and char_of_byte[begin - 1] == first:
            assert offset == first  # it begins inside a character
        else:
            visible = [
                char for char in char_of_byte[begin:end] if not text[char].isspace()
            ]
            assert offset == [*visible, first][0]

        begin = end


def test_offsets_fit_the_text_of_broken_utf8():
    # a, two thirds of a character, b, no UTF-8, é
    text, offsets = BYTES.text_of(
        torch.tensor([0x61, 0xE4, 0xB8, 0x62, 0xFF, 0xC3, 0xA9])
    )
    assert text == "a\ufffd\ufffdb\ufffdé"
    assert offsets.tolist() == [0, 1, 2, 3, 4, 5, 5]


def test_a_space_belongs_to_the_word_after_it():
    text = "Come in, O King!\n"
    ids = BPE.encode(text)
    _, offsets = BPE.text_of(ids, text)
    of_words = set()
    for match in WORD.finditer(text):
        of_words |= set(range(*match.span()))

    for i, offset in zip(ids.tolist(), offsets.tolist(), strict=True):
        assert (offset in of_words) == any(map(str.isalpha, BPE.decode([i])))


@pytest.mark.parametrize(
    "vocabulary",
    [
        Vocabulary("abc ", ("[PAD]", "[MASK]", "[SEP]")),
        ByteVocabulary(("[PAD]", "[MASK]", "[SEP]")),
    ],
    ids=["characters", "bytes"],
)
def test_special_tokens_are_no_words(vocabulary):
    separator = torch.tensor([vocabulary.id_of("[SEP]")])
    ids = torch.cat([vocabulary.encode("ab"), separator, vocabulary.encode("c")])
    text, offsets = vocabulary.text_of(ids)

    assert text == "ab\ufffdc"
    assert offsets is None or offsets.tolist() == [0, 1, 2, 3]
    assert vocabulary.decode(ids) == "ab[SEP]c"
