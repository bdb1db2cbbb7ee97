import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.vocabulary import Vocabulary
from runs.terminal import printable

unicode_text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(unicode_text)
def test_decode_is_the_inverse_of_encode_for_any_text(text):
    vocabulary = Vocabulary(text)
    assert vocabulary.decode(vocabulary.encode(text)) == text


def test_ids_are_the_sorted_characters_then_the_special_tokens():
    vocabulary = Vocabulary("b\na")
    assert vocabulary.encode("\nab").tolist() == [0, 1, 2]
    assert vocabulary.encode("").tolist() == []
    assert (vocabulary.n_ordinary, vocabulary.n_tokens) == (3, 5)
    assert vocabulary.decode([vocabulary.padding_token, vocabulary.mask_token]) == "[PAD][MASK]"
    assert vocabulary.description() == {"characters": ["\n", "a", "b"], "special_tokens": ["[PAD]", "[MASK]"]}


@pytest.mark.parametrize("unknown", ["X", "\U0001f600", "`", "\ud800"])
def test_the_first_unknown_character_is_named(unknown):
    with pytest.raises(ValueError, match="is not in the vocabulary") as error:
        Vocabulary("abc").encode(f"ab{unknown}Y")
    assert repr(unknown) in str(error.value)


def test_printable_escapes_control_characters_and_nothing_else():
    assert printable("\x1b[2J a\tb\n\x00\x7f\x9b\r") == "\\x1b[2J a\tb\n\\x00\\x7f\\x9b\\r"
    assert printable("plain: é, ö, 中, 🎭, \u00a0") == "plain: é, ö, 中, 🎭, \u00a0"
    assert printable("\ud800").isprintable()
