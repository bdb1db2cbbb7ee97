import pytest
import torch

from data.corpus import load_corpus
from data.vocabulary import Vocabulary
from tests.data.play.test_floor import random_automaton
from writing.truth import TruePosterior

VOCABULARY = Vocabulary("abcx")  # has a character that the automaton does not write
MASK = VOCABULARY.mask_token


def check_sums(probs):
    assert probs.sum(1).tolist() == pytest.approx([1] * len(probs))


def test_it_is_the_posterior_of_the_floor_and_other_tokens_are_impossible():
    inputs = VOCABULARY.encode("abcbaacb").view(2, 4)
    inputs[[0, 0, 1, 1], [1, 2, 0, 3]] = MASK
    model = TruePosterior(random_automaton(0), VOCABULARY)
    probs = model(inputs).exp()

    shown = inputs.clamp(max=3)  # 3 is the floor's [MASK]
    everywhere = torch.ones(2, 4, dtype=torch.bool)
    expected = model.floor.posteriors(shown, everywhere)

    torch.testing.assert_close(probs[:, :3], expected, rtol=0, atol=1e-12)

    assert not probs[:, 3:].any()


def test_positions_choose_rows_in_any_order():
    model = TruePosterior(random_automaton(1), VOCABULARY)
    inputs = torch.full((3, 5), MASK)
    inputs[:, 2] = VOCABULARY.encode("abc")
    for positions in ([14, 0, 7, 3], [[4, 1], [5, 9], [14, 10]]):
        chosen = torch.tensor(positions)
        assert model(inputs, chosen).equal(model(inputs)[chosen.flatten()])


def test_an_impossible_text_is_explained_by_misprints_and_others_are_exact():
    model = TruePosterior(random_automaton(2), VOCABULARY)
    inputs = VOCABULARY.encode("bacxac").view(2, 3)  # x is certainly a misprint
    inputs[:, 1] = MASK
    hidden = inputs.where(inputs != VOCABULARY.id_of("x"), MASK)
    probs = model(inputs).exp()

    expected = model(hidden).exp()

    assert probs[:3].equal(expected[:3])

    torch.testing.assert_close(probs[3:5], expected[3:5], rtol=0, atol=1e-4)

    check_sums(probs)


def test_it_fits_the_vocabulary_of_the_play_and_refuses_one_that_cannot_write_the_text():
    with pytest.raises(ValueError, match="lacks the character 'c'"):
        TruePosterior(random_automaton(0), Vocabulary("ab"))

    corpus = load_corpus("play")
    vocabulary = Vocabulary(corpus.counts)
    model = TruePosterior(corpus.automaton, vocabulary)
    end = corpus.validation.index("?\n\n")
    inputs = vocabulary.encode(corpus.validation[end - 60 : end + 4])[None]

    inputs[0, 60] = vocabulary.mask_token

    assert model(inputs, torch.tensor([60]))[0, vocabulary.id_of("?")].exp() > 0.999

    check_sums(model(inputs.flip(1)).exp())
