"""Tokenizers that users bring."""

import pytest
import torch

from data.tokens.choose import load_vocabulary
from data.tokens.custom import CustomVocabulary
from data.tokens.errors import TokensError

SOURCE = {"reference": "my.py:Syllables", "sha256": "0" * 64}


class Syllables:
    """Two characters per token, with a single one as the last."""

    def __init__(self, tokens=("a", "b", "é", "aa", "ab", "ba", b"b\xc3\xa9")):
        self.tokens = tokens

    def encode(self, text):
        pieces = [text[i : i + 2] for i in range(0, len(text), 2)]
        return [
            self.tokens.index(piece.encode() if "é" in piece else piece)
            for piece in pieces
        ]


def returning(ids):
    tokenizer = Syllables()
    tokenizer.encode = lambda text: ids
    return tokenizer


def test_a_users_tokenizer_needs_its_tokens_and_encode():
    vocabulary = CustomVocabulary(Syllables(), SOURCE)
    ids = vocabulary.encode("abbéba")

    assert ids.tolist() == [4, 6, 5]
    assert vocabulary.decode([*ids, vocabulary.mask_token]) == "abbéba[MASK]"
    assert vocabulary.lengths[ids].tolist() == [2, 2, 2]

    again = load_vocabulary(vocabulary.description(), Syllables())

    assert again.description() == vocabulary.description()
    assert torch.equal(again.encode("abba"), vocabulary.encode("abba"))


@pytest.mark.parametrize(
    "tokens", [[], ["a", "a"], ["a", "[MASK]"], ["a", 1], ["a", b"a"]]
)
def test_tokens_that_are_no_vocabulary_are_refused(tokens):
    with pytest.raises(TokensError, match=r"^data\.tokens"):
        CustomVocabulary(Syllables(tokens), SOURCE)


@pytest.mark.parametrize("ids", [None, "ab", [0, 7], [-1], [[0, 1]], ["a"]])
def test_ids_that_are_none_of_the_tokens_are_refused(ids):
    with pytest.raises(TokensError, match=r"^data\.tokens: encode\(\)"):
        CustomVocabulary(returning(ids), SOURCE).encode("ab")
    assert CustomVocabulary(returning([]), SOURCE).encode("").tolist() == []
