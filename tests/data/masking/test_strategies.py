import numpy as np
import pytest
import torch

from data.masking.adaptive import AdaptiveUnits
from data.masking.mixture import Mixture
from data.masking.segmenters import Characters, CorpusUnits
from data.masking.strategies import STRATEGIES, collocations, entities, find_names
from data.masking.surprise import surprise
from data.masking.words import Words

TEXT = "ROMEO:\nBut soft, what light breaks?\n\nJULIET:\nO Romeo, good Romeo! I hear old Friar John.\n\n"


def pieces(cut: CorpusUnits, text: str) -> list[str]:
    lengths = torch.unique_consecutive(cut.unit_of, return_counts=True)[1].tolist()
    assert sum(lengths) == len(text)
    ends = np.cumsum(lengths)
    return [text[end - n : end] for n, end in zip(lengths, ends, strict=True)]


def weight_of(cut: CorpusUnits, text: str) -> dict[str, float]:
    return dict(zip(pieces(cut, text), cut.weights.tolist(), strict=True))


def test_whole_words():
    cut = STRATEGIES["whole_word"](TEXT)
    assert pieces(cut, TEXT)[:12] == ["ROMEO", ":", "\n", "But", " ", "soft", ",", " ", "what", " ", "light", " "]
    assert set(cut.weights.tolist()) == {1.0}


def test_words_keep_their_apostrophes():
    assert Words("we'll go, know't").tokens == ["we'll", "go", "know't"]


def test_names_are_found_in_the_text_itself():
    found = [TEXT[begin:end] for begin, end in find_names(TEXT)]
    assert found == ["ROMEO", "JULIET", "Romeo", "Romeo", "Friar John"]


def test_names_are_wholes_with_three_times_the_weight():
    weights = weight_of(STRATEGIES["entity"](TEXT), TEXT)
    assert weights["Friar John"] == weights["Romeo"] == 3.0
    assert weights["light"] == weights[" "] == 1.0


def test_any_function_can_find_the_entities_and_overlaps_go_to_the_first():
    cut = entities("one two three four", lambda text: [(4, 13), (8, 18), (0, 2)])
    assert pieces(cut, "one two three four") == ["on", "e", " ", "two three", " ", "four"]


def test_rare_words_weigh_more_by_the_root_of_their_frequency():
    text = "a rose is a rose, a thorn"
    weights = weight_of(STRATEGIES["frequency"](text), text)
    assert weights["thorn"] == pytest.approx(1.0)
    assert weights["rose"] == pytest.approx(2**-0.5)
    assert weights["a"] == pytest.approx(3**-0.5)
    assert weights[" "] == pytest.approx(text.count(" ") ** -0.5)


def test_surprise_is_low_where_neighbours_decide_and_high_where_they_do_not():
    generator = np.random.default_rng(0)
    text = "".join(f"q{'u'}{'aeio'[i]} " for i in generator.integers(0, 4, 5_000))
    values = surprise(text).reshape(-1, 4).mean(0)
    assert values[1] < 0.01  # the u after q
    assert values[2] == pytest.approx(np.log(4), abs=0.05)  # one of four vowels


def test_surprising_words_weigh_more():
    text = "the cat sat on the mat. " * 200 + "zyx "
    weights = weight_of(STRATEGIES["contextual"](text), text)
    assert weights["zyx"] > 20 * weights["mat"]


def test_words_that_belong_together_are_one_unit():
    generator = np.random.default_rng(0)
    words = [f"w{i}" for i in generator.integers(0, 50, 4_000)]
    for i in range(0, 4_000, 40):
        words[i : i + 3] = ["kith", "and", "kin"]
    text = " ".join(words)
    assert ("kith", "and", "kin") in collocations(words)
    assert "kith and kin" in pieces(STRATEGIES["pmi"](text), text)


def test_telling_words_weigh_more():
    speeches = ["the king is the king\n\n"] * 30 + ["the dagger is the king\n\n"]
    text = "".join(speeches)
    weights = weight_of(STRATEGIES["semantic"](text), text)
    assert weights["dagger"] > 5 * weights["the"] > 0
    assert weights[" "] == min(weights.values())


def test_phrases_are_cut_at_function_words_and_punctuation():
    text = "the old king sleeps, and brave soldiers of France march home again tonight slowly"
    cut = STRATEGIES["syntax"](text)
    found = pieces(cut, text)
    for phrase in ("old king sleeps", "brave soldiers", "France march home again", "tonight slowly", "the", "of"):
        assert phrase in found
    weights = weight_of(cut, text)
    assert weights["old king sleeps"] == 2.0
    assert weights["the"] == weights["of"] == 1.0


def test_adaptive_moves_weight_to_what_is_hard():
    text = "easy hard " * 50
    cut = STRATEGIES["adaptive"](text)
    assert isinstance(cut, AdaptiveUnits)
    offsets = torch.arange(len(text))
    losses = torch.where(offsets % 10 >= 5, 3.0, 0.1)  # the second word of each pair
    for _ in range(100):
        cut.observe(offsets, losses)
    _, weights = cut(offsets[None], torch.Generator())
    assert weights[0, text.index("hard")] > 2.5
    assert weights[0, text.index("easy")] < 0.2
    saved = cut.state_dict()
    again = STRATEGIES["adaptive"](text)
    again.load_state_dict(saved)
    assert torch.equal(again.means, cut.means)


def test_adaptive_leaves_types_alone_that_were_not_seen():
    text = "one two " * 10
    cut = STRATEGIES["adaptive"](text)
    cut.observe(torch.tensor([0, 1, 2]), torch.tensor([9.0, 9.0, 9.0]))
    _, weights = cut(torch.arange(len(text))[None], torch.Generator())
    assert weights[0, 0] == pytest.approx(1 + 0.05 * 8)
    assert weights[0, 4] == 1.0


def test_a_mixture_keeps_its_shares_and_changes_them_with_the_progress():
    text = "word " * 40
    rows = [(0.5, {"random": 3.0, "whole_word": 1.0}), (1.0, {"whole_word": 1.0})]
    cut = Mixture({"random": Characters(), "whole_word": STRATEGIES["whole_word"](text)}, rows)
    offsets = torch.arange(200).expand(8_000, 200)
    units, _ = cut(offsets, torch.Generator().manual_seed(0))
    single = (units[:, 0] != units[:, 1]).double().mean()  # the first two characters of a word are apart
    assert abs(single - 0.75) < 4 * (0.75 * 0.25 / 8_000) ** 0.5
    cut.progress = 0.5
    units, _ = cut(offsets[:100], torch.Generator().manual_seed(0))
    assert (units[:, 0] == units[:, 1]).all()
