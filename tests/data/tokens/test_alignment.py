"""Tokens of all kinds of tokenizers, and the characters that they stand for."""

import json

import pytest
import torch

from data.corpus import Corpus
from data.masking.strategies import STRATEGIES
from data.masking.token_units import for_tokens
from data.masking.words import WORD
from data.tokens.choose import load_vocabulary, share_lost, vocabulary_of
from tests.conftest import SENTENCES
from tests.tokenizers import MAKERS, letters, smiles

TEXT = ("".join(SENTENCES) + "ROMEO isn't far, they say.\n\nO  King!\n") * 20
MOLECULES = "CC(=O)Oc1ccccc1C(=O)O\nCCO\nC[C@H](N)C(=O)O\n" * 60


def made(folder, tokenizer, text):
    """The vocabulary of a tokenizer for a text of documents."""
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    corpus = Corpus("test", text, text)
    return vocabulary_of(str(path), corpus, (), print)


@pytest.fixture(scope="module", params=[*MAKERS, "smiles"])
def kind(request, tmp_path_factory):
    """A vocabulary and its text."""
    text = MOLECULES if request.param == "smiles" else TEXT
    tokenizer = (
        smiles(text) if request.param == "smiles" else MAKERS[request.param](text)
    )
    folder = tmp_path_factory.mktemp("tokens")
    return made(folder, tokenizer, text), text


def test_each_character_is_counted_once(kind):
    vocabulary, text = kind
    ids = vocabulary.encode(text)
    n_unknown, n_vanished = vocabulary.lost(text)

    assert n_vanished == 0
    n_counted = float(vocabulary.lengths[ids].sum())
    assert n_counted == pytest.approx(len(text) - n_unknown, abs=2)


def test_tokens_begin_at_their_characters(kind):
    """Against the names of the tokens without marks for spaces and parts of words."""
    vocabulary, text = kind
    ids, begins = vocabulary.encoded(text)

    assert torch.equal(ids, vocabulary.encode(text))

    n_compared = 0
    for i, begin in zip(ids.tolist(), begins.tolist(), strict=True):
        if i >= vocabulary.n_ordinary:
            continue
        name = vocabulary.ordinary[i].removeprefix("##").removesuffix("</w>")
        name = name.strip("▁Ġ")
        if name.isalpha() and name.isascii():
            n_compared += 1
            assert text[begin : begin + len(name)].lower() == name.lower()

    assert n_compared > len(ids) / 2


def test_whole_words_are_hidden_together(kind):
    vocabulary, text = kind
    ids, begins = vocabulary.encoded(text)
    corpus = Corpus("test", text, text)
    segmenter = for_tokens(STRATEGIES["whole_word"], corpus, ids, vocabulary)
    units, _ = segmenter(torch.arange(len(ids))[None], torch.Generator(), 0.0)

    unit_of = {}
    for match in WORD.finditer(text):
        inside = (begins >= match.start()) & (begins < match.end())
        of_word = set(units[0][inside].tolist())
        assert len(of_word) <= 1  # none if a token begins before the word and holds it
        assert not of_word & unit_of.keys()
        unit_of |= dict.fromkeys(of_word, match[0])


def test_decoded_tokens_read_like_the_text(kind):
    """What strategies and the page of a run get where the text itself is not known."""
    vocabulary, text = kind
    shown = vocabulary.decode(vocabulary.encode(text)).replace("\ufffd", " ")

    assert shown.lower().split() == text.lower().split()


def test_a_saved_vocabulary_keeps_what_it_has_learned(kind):
    vocabulary, _ = kind
    again = load_vocabulary(json.loads(json.dumps(vocabulary.description())))

    assert again.description() == vocabulary.description()
    assert again.surfaces == vocabulary.surfaces
    assert torch.equal(again.lengths, vocabulary.lengths)


def test_text_that_is_lost_is_counted(tmp_path):
    vocabulary = made(tmp_path, letters(TEXT.lower()), TEXT.lower())

    assert vocabulary.lost("the cat") == (0, 0)
    assert vocabulary.lost("the 中文 cat, Ω!") == (0, 5)
    assert "33.33% have no token and vanish" in share_lost(
        vocabulary, "the cat 中文人人"
    )


def test_a_latin_tokenizer_does_not_know_chinese(tmp_path):
    vocabulary = made(tmp_path, MAKERS["words"](TEXT), TEXT)

    assert vocabulary.lost("the cat 人人生而自由 dog") == (6, 0)
