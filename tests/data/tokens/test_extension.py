"""`data.extend_vocabulary`: pieces of a text that join those of a tokenizer."""

import json

import pytest
from tokenizers import Tokenizer

from data.tokens.extension import extended
from data.tokens.subwords import ids_of
from tests.tokenizers import MAKERS

SAID = "the catamaran and the catalogue sat on the matriarch. "
KINDS = ["wordpiece", "unigram", "gpt2", "suffixed"]


@pytest.mark.parametrize("kind", KINDS)
def test_new_tokens_are_joined_pieces_and_shorten_the_text(kind, sentences):
    before = MAKERS[kind](sentences)
    before.no_truncation()
    content = json.loads(before.to_str())
    ids = ids_of(content)
    n_rows = len(ids) + 5

    new, pieces = extended(content, SAID * 20, 12, n_rows)

    after = Tokenizer.from_str(json.dumps(new))
    names = {i: token for token, i in ids.items()}
    for number, (token, rows) in enumerate(pieces.items()):
        assert after.token_to_id(token) == n_rows + number
        parts = [names[row] for row in rows]
        assert token == parts[0] + "".join(
            part.removeprefix("##") for part in parts[1:]
        )
        assert len(parts) > 1
    lengths = [
        len(tokenizer.encode(SAID, add_special_tokens=False).ids)
        for tokenizer in (before, after)
    ]
    assert 0 < len(pieces) <= 12
    assert lengths[1] < lengths[0]
    assert all(after.token_to_id(token) == i for token, i in ids.items())


def test_each_token_of_the_text_is_cut_at_words(sentences):
    content = json.loads(MAKERS["gpt2"](sentences).to_str())

    _, pieces = extended(content, SAID * 20, 100, 400)

    assert not any("Ġ" in token[1:] for token in pieces)
