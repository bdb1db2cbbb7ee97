"""Runs with tokenizers of all kinds: losses per character, masks of whole words, predictions."""

from itertools import pairwise

import pytest
import torch
from tokenizers import Tokenizer

import predict
from data.masking.words import WORD
from data.tasks.task import WORDS
from tests.conftest import SENTENCES, written
from tests.tokenizers import MAKERS, smiles
from trained.examples import reading_of
from trained.load import load_trained
from trained.measures import word_masks
from trained.template import read_template
from training.callbacks.per_character import per_character
from training.evaluation import evaluate

TEXT = "".join(SENTENCES) + "ROMEO isn't far, they say.\n\nO King!\n"
MOLECULES = "CC(=O)Oc1ccccc1C(=O)O\nCCO\nC[C@H](N)C(=O)O\n"
KINDS = [
    "cased wordpiece",
    "wordpiece",
    "gpt2 without decoder",
    "unigram without decoder",
    "words",
    "smiles",
]


@pytest.fixture(params=KINDS)
def run(request, tmp_path, train):
    """A run of two steps on a text, and the file of its tokenizer."""
    text = (MOLECULES if request.param == "smiles" else TEXT) * 400
    make = smiles if request.param == "smiles" else MAKERS[request.param]
    tokenizer = tmp_path / "tokenizer.json"
    make(text).save(str(tokenizer))
    trained = train(
        data__corpus=written(tmp_path / "text.txt", text),
        data__tokens=str(tokenizer),
        training__max_steps=2,
    )
    return load_trained(str(trained.run.path)), tokenizer


def places_of(tokenizer, text, n):
    """The first and the last character of each of the first `n` tokens, by the library alone, with
    the spaces before it that have no token."""
    library = Tokenizer.from_file(str(tokenizer))
    library.no_truncation()
    encoding = library.encode(text, add_special_tokens=False)
    ends = [0] + [end for _, end in encoding.offsets]
    return list(pairwise(ends))[:n]


def test_the_loss_per_character_counts_the_characters_of_the_text(run):
    trained, tokenizer = run
    data = trained.data()
    validation = data.validation_set
    mask_token = trained.vocabulary.mask_token
    result = evaluate(trained.model, validation, mask_token, seq_len=256)
    row = per_character(result, validation, trained.vocabulary.lengths)

    n = validation.windows.numel()
    places = places_of(tokenizer, data.loaded.validation, n)
    n_chars = 0
    for (begin, end), masked in zip(places, validation.masked.flatten(), strict=True):
        n_chars += (end - begin) * bool(masked)

    losses, _ = result.outcomes
    expected = losses.sum().item() / n_chars
    assert row["loss.valid_per_character"] == pytest.approx(expected, rel=0.02)


def test_masks_of_words_hide_the_words_of_the_text(run):
    trained, tokenizer = run
    data = trained.data()
    windows = data.validation_set.windows
    masked = word_masks(data.validation_set, trained.vocabulary).flatten()
    text = data.loaded.validation
    words = set(WORD.findall(text))
    places = places_of(tokenizer, text, windows.numel())

    begins = (masked & ~masked.roll(1)).nonzero().flatten().tolist()
    ends = (masked & ~masked.roll(-1)).nonzero().flatten().tolist()
    n_found = 0
    for first, last in zip(begins, ends, strict=True):
        hidden = text[places[first][0] : places[last][1]]
        n_found += set(WORD.findall(hidden)) <= words

    assert n_found == len(begins) > 0


def test_predictions_keep_the_text_around_blanks(run, printed):
    trained, _ = run
    template = (
        "CC(=O)_c1C[MASK]O"
        if "C" in trained.vocabulary.ordinary
        else "the _ sat  on _."
    )
    before, between, after = template.replace("[MASK]", "_").split("_")
    output = printed(predict.main, trained.run.path, template).removesuffix("\n")

    assert output.startswith(before)
    assert between in output
    assert output.endswith(after)
    assert not set("Ġ▁#") & set(output)
    assert "  " not in output.replace(between, "")


def test_a_space_before_a_blank_is_not_doubled(run):
    """Neither by a token that stands for the space before its word too, nor by one that does
    not."""
    trained, _ = run
    vocabulary = trained.vocabulary
    template = read_template("on _ mat", vocabulary)
    ids = template.ids
    blank = int((ids == vocabulary.mask_token).nonzero())
    texts = [vocabulary.decode([i]) for i in range(vocabulary.n_ordinary)]
    words = [i for i, text in enumerate(texts) if text.strip().isalpha()]
    for i in words[:50]:
        ids[blank] = i
        text, (offset,) = template.filled(ids)

        assert text[offset:].startswith(texts[i])
        if vocabulary.has_spaces_in_words:
            assert text == f"on {texts[i].strip()} mat"


def test_each_word_has_tokens_of_its_own(run):
    """Also words that the tokenizer cannot read, or that it would join with others."""
    trained, _ = run
    texts = ["We  proceed\n中文 to", "", "CCO"]
    reading = reading_of(texts, WORDS, trained)
    numbers = [torch.arange(len(text.split())) for text in texts]
    of_tokens = torch.cat(reading.of_tokens(numbers))

    assert [len(ends) for ends in reading.ends] == [4, 0, 1]
    assert len(of_tokens) == sum(map(len, reading.ids))

    scores = reading.of_units(of_tokens[:, None])
    assert scores.flatten().tolist() == [0, 1, 2, 3, 0]
