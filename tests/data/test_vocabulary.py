"""Characters as tokens."""

from collections import Counter

import pytest

from data.corpus import CorpusError
from data.vocabulary import Vocabulary, characters_of
from runs.terminal import printable


def test_ids_are_the_sorted_characters_then_the_special_tokens():
    vocabulary = Vocabulary("b\na")
    assert vocabulary.encode("\nab").tolist() == [0, 1, 2]
    assert vocabulary.encode("").tolist() == []
    assert (
        vocabulary.decode([vocabulary.padding_token, vocabulary.mask_token])
        == "[PAD][MASK]"
    )
    assert vocabulary.description() == {
        "characters": ["\n", "a", "b"],
        "special_tokens": ["[PAD]", "[MASK]"],
    }


@pytest.mark.parametrize("unknown", ["X", "\U0001f600", "`", "\ud800"])
def test_the_first_unknown_character_is_named(unknown):
    with pytest.raises(ValueError, match="is not in the vocabulary") as error:
        Vocabulary("abc").encode(f"ab{unknown}Y")
    assert repr(unknown) in str(error.value)


COUNTS = Counter("aaaabbbb" * 20 + "cc" + "d" * 38)


def test_rare_characters_become_unknown():
    vocabulary = characters_of(COUNTS, "", 0.02, ())
    assert vocabulary.characters == ["a", "b", "d"]
    assert vocabulary.unknown_token == 5
    assert vocabulary.encode("abcΩ").tolist() == [0, 1, 5, 5]
    assert vocabulary.decode(vocabulary.encode("abc")) == "ab\ufffd"


@pytest.mark.parametrize(("extra", "unknown_below"), [("c", 0.02), ("", 0.0)])
def test_no_character_is_unknown_if_all_are_kept(extra, unknown_below):
    vocabulary = characters_of(COUNTS, extra, unknown_below, ())
    assert vocabulary.description() == Vocabulary("abcd").description()


def test_too_few_and_too_many_characters_are_refused():
    with pytest.raises(CorpusError, match="no character has such a share"):
        characters_of(COUNTS, "", 0.9, ())

    many = Counter(map(chr, range(0x3400, 0xD800)))
    many["a"] = 1_000_000

    with pytest.raises(CorpusError, match="41,985 different characters are too many"):
        characters_of(many, "", 0.0, ())

    assert characters_of(many, "", 1e-5, ()).n_tokens == 4


def test_printable_escapes_control_characters_and_nothing_else():
    assert (
        printable("\x1b[2J a\tb\n\x00\x7f\x9b\r") == "\\x1b[2J a\tb\n\\x00\\x7f\\x9b\\r"
    )
    assert printable("plain: é, ö, 中, 🎭, \u00a0") == "plain: é, ö, 中, 🎭, \u00a0"
    assert printable("\ud800").isprintable()
