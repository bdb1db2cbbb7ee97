from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.vocabulary import Vocabulary

unicode_text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(unicode_text)
def test_decode_undoes_encode_for_any_text(text):
    vocabulary = Vocabulary(text)
    assert vocabulary.decode(vocabulary.encode(text)) == text


def test_ids_are_the_sorted_characters_then_the_special_tokens():
    vocabulary = Vocabulary("b\na")
    assert vocabulary.encode("\nab").tolist() == [0, 1, 2]
    assert (vocabulary.n_chars, vocabulary.n_tokens) == (3, 5)
    assert vocabulary.decode([vocabulary.padding_token, vocabulary.mask_token]) == "[PAD][MASK]"


@pytest.mark.parametrize("text", ["abX", "ab\U0001f600", "ab`"])
def test_an_unknown_character_is_named(text):
    with pytest.raises(ValueError, match="is not in the vocabulary") as error:
        Vocabulary("abc").encode(text)
    assert repr(text[-1]) in str(error.value)


def test_saved_and_loaded_it_is_the_same(tmp_path: Path):
    vocabulary = Vocabulary("a\n\u2028é\U0001f600")
    vocabulary.save(tmp_path / "vocabulary.json")
    loaded = Vocabulary.load(tmp_path / "vocabulary.json")
    assert loaded.characters == vocabulary.characters
    assert loaded.special_tokens == vocabulary.special_tokens


def test_tiny_shakespeare_has_65_characters(shakespeare: str):
    assert Vocabulary(shakespeare).n_chars == 65
