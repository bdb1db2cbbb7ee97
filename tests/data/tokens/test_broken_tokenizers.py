"""Tokenizer files at which the package `tokenizers` panics, with a BaseException."""

import base64
import json

import pytest
from tokenizers.pre_tokenizers import FixedLength

from data.tokens.errors import TokensError
from data.tokens.subwords import SubwordVocabulary, read_tokenizer

WORDS = {
    "type": "WordLevel",
    "vocab": {"a": 0, "b": 1, "[UNK]": 2},
    "unk_token": "[UNK]",
}


def bpe_model(tokens, merge, prefix=None):
    vocab = {token: i for i, token in enumerate(tokens)}
    model = {"type": "BPE", "vocab": vocab, "merges": [merge]}
    return model | {"continuing_subword_prefix": prefix}


CHARSMAP = base64.b64encode(b"\x04\0\0\0abcdefgh").decode()
BROKEN = {
    "while it encodes": {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
    "in its normalizer": {
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": CHARSMAP}
    },
    "as it loads": {
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": "/////w=="}
    },
    "while it decodes": {
        "decoder": {"type": "Strip", "content": "a", "start": 3, "stop": 3}
    },
    "merge of an unknown token": {"model": bpe_model(["a"], ["a", "c"])},
    "merge into an unknown token": {"model": bpe_model(["a", "b"], ["a", "b"])},
    "merge inside a character": {"model": bpe_model(["a", "é", "aé"], ["a", "é"], "#")},
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_tokenizer_is_refused_in_one_line(kind, tmp_path, capfd):
    content = {"added_tokens": [], "model": WORDS} | BROKEN[kind]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content))

    with pytest.raises(TokensError, match=r"tokenizer\.json") as raised:
        read_tokenizer(path)

    assert str(raised.value).isprintable()
    assert capfd.readouterr().err == ""


def test_a_panic_at_a_later_text_is_refused_too():
    vocabulary = SubwordVocabulary({"added_tokens": [], "model": WORDS})
    vocabulary._tokenizer.pre_tokenizer = FixedLength(0)

    with pytest.raises(TokensError, match="cannot encode the text"):
        vocabulary.encode("ab")
