import re
from collections import Counter
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given, reject
from hypothesis import strategies as st

from data.batch import IGNORED_LABEL
from data.masking import n_masked_in
from data.masking.strategies import STRATEGIES
from data.masking.weights import Surprise, TfIdf, collocations, joined
from data.masking.words import cut, names_pattern
from data.text.sources import CorpusError
from tests.data.masking.helpers import generator, masker_of

TEXT = "ROMEO:\nBut soft, what light breaks?\n\nJULIET:\nO Romeo, good Romeo! I hear old Friar John.\n\n"


def pieces(segmenter, text):
    _, lengths = torch.unique_consecutive(segmenter.unit_of, return_counts=True)
    assert lengths.sum() == len(text)

    remaining = iter(text)
    return ["".join(islice(remaining, n)) for n in lengths.tolist()]


def weight_of(segmenter, text):
    return dict(zip(pieces(segmenter, text), segmenter.weights.tolist(), strict=True))


def test_whole_words_with_their_apostrophes():
    segmenter = STRATEGIES["whole_word"](TEXT)
    expected = [
        "ROMEO",
        ":",
        "\n",
        "But",
        " ",
        "soft",
        ",",
        " ",
        "what",
        " ",
        "light",
        " ",
    ]

    assert pieces(segmenter, TEXT)[:12] == expected
    assert set(weight_of(segmenter, TEXT).values()) == {1.0}
    assert cut("we'll go, know't") == ["we'll", " ", "go", ",", " ", "know't"]


ROSES = "a rose is a rose, a thorn"
# 1 / sqrt(frequency)
OF_ROSES = {"thorn": 1.0, "rose": 2**-0.5, "a": 3**-0.5, " ": ROSES.count(" ") ** -0.5}
PHRASES = (
    "the old king sleeps, and brave soldiers of France march home again tonight slowly"
)
OF_PHRASES = {
    "old king sleeps": 2.0,
    "brave soldiers": 2.0,
    "France march home again": 2.0,
    "tonight slowly": 2.0,
}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("entity", TEXT, {"Friar John": 3.0, "Romeo": 3.0, "light": 1.0, " ": 1.0}),
        ("frequency", ROSES, OF_ROSES),
        # ended by function words and punctuation
        ("syntax", PHRASES, OF_PHRASES | {"the": 1.0, "of": 1.0}),
    ],
)
def test_units_have_their_weights(name, text, expected):
    weights = weight_of(STRATEGIES[name](text), text)
    assert {unit: weights[unit] for unit in expected} == pytest.approx(expected)


def test_surprising_words_weigh_more():
    text = "the cat sat on the mat. " * 200 + "zyx "
    weights = weight_of(STRATEGIES["contextual"](text), text)

    assert weights["zyx"] > 20 * weights["mat"]


PREDICTABLE = {
    "log lines": "2024-01-01 12:00:00 INFO server: request served in 10 ms\n" * 1_000,
    "dashes": ("-" * 72 + "\n") * 8_000 + "One sentence that is different.\n",
    "one letter": "a " * 1_000,
}


@pytest.mark.parametrize("text", PREDICTABLE.values(), ids=PREDICTABLE)
def test_contextual_hides_predictable_text_too(text):
    masker, ids = masker_of(text, STRATEGIES["contextual"](text))
    offsets = torch.randint(
        len(ids) - 128, (200, 1), generator=generator()
    ) + torch.arange(128)

    assert (masker(ids[offsets], offsets, 0.15).labels != IGNORED_LABEL).all()


def test_collocations_are_single_units():
    words = [f"w{i}" for i in np.random.default_rng(0).integers(0, 50, 4_000)]
    for i in range(0, 4_000, 40):
        words[i : i + 3] = ["kith", "and", "kin"]

    text = " ".join(words)

    assert "kith and kin" in pieces(STRATEGIES["pmi"](text), text)


def test_informative_words_weigh_more():
    speeches = ["the king is the king\n\n"] * 30 + ["the dagger is the king\n\n"]
    text = "".join(speeches)
    weights = weight_of(STRATEGIES["semantic"](text), text)

    assert weights["dagger"] > 5 * weights["the"] > 0
    assert weights[" "] == min(weights.values())


@given(
    text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=80),
    name=st.sampled_from(list(STRATEGIES)),
    masking_prob=st.floats(0.001, 1.0),
    seed=st.integers(0, 2**31),
)
def test_any_text_any_window_any_budget(text, name, masking_prob, seed):
    try:
        segmenter = STRATEGIES[name](text)
    except CorpusError:  # it has no words
        reject()

    masker, ids = masker_of(text, segmenter, seed=seed)
    offsets = torch.arange(len(ids)).expand(3, -1)
    tokens = ids[offsets]

    batch = masker(tokens, offsets, masking_prob)

    assert batch.positions.shape == (3, n_masked_in(len(ids), masking_prob))
    assert (batch.positions // len(ids) == torch.arange(3)[:, None]).all()
    assert batch.positions.unique().numel() == batch.positions.numel()
    # every strategy can hide every character
    assert torch.equal(batch.labels, ids[batch.offsets])

    restored = batch.inputs.flatten().index_put((batch.positions,), batch.labels)
    assert torch.equal(restored, tokens.flatten())  # no other character is changed
    assert torch.equal(tokens, ids[offsets])  # the argument is not modified


CONTRACTIONS = (
    "ROMEO:\nNay, I'll go, Come with him, Let it be, All of it, he's Tybalt.\n\n"
    "All:\nThey come, let all go!\n\n"
)
KINGS = "I saw the king of France, good King Edward, a friend.\nKing Edward spoke.\n"
CASES = {
    "speakers, and capitals inside a sentence": (
        TEXT,
        ["ROMEO", "JULIET", "Romeo", "Romeo", "Friar John"],
    ),
    "no verse line that ends in a colon": (
        "ROMEO:\nHeaven's will be done:\nAlack the day:\nGo hence.\n",
        ["ROMEO"],
    ),
    "no long line that ends in a colon": (
        "ROMEO:\nGo.\n\nLines of verse that follow an empty one are longer:\nGo.\n\n",
        ["ROMEO"],
    ),
    "no contractions, and no words that occur in lower case": (
        CONTRACTIONS,
        ["ROMEO", "Tybalt"],
    ),
    "words that are not names, inside a name": (
        KINGS,
        ["France", "King Edward", "King Edward"],
    ),
    "line ends of Windows": (
        "ROMEO:\r\nGo.\r\n\r\nNURSE:\r\nGo, Romeo.\r\n",
        ["ROMEO", "NURSE", "Romeo"],
    ),
    "none": ("no names here. None at all.", []),
    "an empty text": ("", []),
}


def names_in(text):
    return re.findall(names_pattern(text), text)


@pytest.mark.parametrize(("text", "names"), CASES.values(), ids=CASES)
def test_names(text, names):
    assert names_in(text) == names


def test_the_names_of_tiny_shakespeare(shakespeare):
    names = Counter(names_in(shakespeare))
    assert (
        not {"I'll", "I", "Come", "Let", "All", "And", "Sir", "What", "But"}
        & names.keys()
    )

    expected = [
        "Romeo",
        "JULIET",
        "Warwick",
        "KING RICHARD III",
        "Rome",
        "Friar Laurence",
        "England",
    ]

    assert names.keys() >= set(expected)
    assert names.total() > 8_000


def test_surprise_is_low_for_what_the_neighbors_decide():
    numbers = np.random.default_rng(0).integers(0, 4, 5_000)
    text = "".join(f"qu{'aeio'[i]} " for i in numbers)
    values = Surprise(text)(text).reshape(-1, 4).mean(0)

    assert values[1] < 0.01  # the u after q
    assert values[2] == pytest.approx(np.log(4), abs=0.05)  # one of four vowels


def test_tf_idf_is_high_for_words_of_few_speeches():
    text = "the king\n\nthe queen\n\nthe king"
    the, king, queen = np.log([4 / 3, 4 / 2, 4 / 1]) / 2

    assert TfIdf(text)(text) == pytest.approx([the, king, the, queen, the, king])


def test_a_collocation_may_end_the_text_and_a_text_without_ngrams_has_none():
    assert collocations([]) == collocations(["one"]) == set()
    assert joined(["a", " ", "kith", " ", "kin"], {("kith", "kin")}) == [
        "a",
        " ",
        "kith kin",
    ]
