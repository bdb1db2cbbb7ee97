from itertools import product

import pytest
import torch

from data.corpus import load_corpus
from data.vocabulary import Vocabulary
from tests.data.play.test_floor import random_automaton
from writing.truth import TruePosterior

VOCABULARY = Vocabulary("abcx")  # has a character that the automaton does not write
MASK = VOCABULARY.mask_token


def brute_force(model: TruePosterior, inputs: torch.Tensor) -> torch.Tensor:
    """P(token | visible), `[seq_len, n_tokens]`, from the probabilities of all texts."""
    texts = torch.tensor(list(product(range(VOCABULARY.n_ordinary), repeat=len(inputs))))
    fits = ((texts == inputs) | (inputs >= VOCABULARY.n_ordinary)).all(1)
    probs = model.floor.log_probability(model.to_floor(texts)).exp() * fits
    sums = torch.stack([probs @ (texts == token).double() for token in range(VOCABULARY.n_tokens)], dim=1)
    return sums / probs.sum()


def test_it_is_the_posterior_over_all_texts():
    model = TruePosterior(random_automaton(0), VOCABULARY)
    inputs = VOCABULARY.encode("abcbaacb").view(2, 4)
    inputs[0, 1:3] = inputs[1, 0] = inputs[1, 3] = MASK
    logits = model(inputs)
    assert logits.shape == (8, VOCABULARY.n_tokens)
    for row, found in zip(inputs, logits.view(2, 4, -1), strict=True):
        assert torch.allclose(found.exp(), brute_force(model, row), rtol=0, atol=1e-12)
    assert logits[:, VOCABULARY.n_ordinary :].eq(-torch.inf).all()
    assert logits[:, VOCABULARY.id_of("x")].eq(-torch.inf).all()


def test_positions_choose_rows_in_any_order():
    model = TruePosterior(random_automaton(1), VOCABULARY)
    inputs = torch.full((3, 5), MASK)
    inputs[:, 2] = VOCABULARY.encode("abc")
    for positions in (torch.tensor([14, 0, 7, 3]), torch.tensor([[4, 1], [5, 9], [14, 10]])):
        assert torch.equal(model(inputs, positions), model(inputs)[positions.flatten()])


def test_an_impossible_text_is_explained_by_misprints_and_others_are_exact():
    model = TruePosterior(random_automaton(2), VOCABULARY)
    inputs = VOCABULARY.encode("bacxac").view(2, 3)  # x is certainly a misprint
    inputs[:, 1] = MASK
    hidden = inputs.where(inputs != VOCABULARY.id_of("x"), MASK)
    probs = model(inputs).exp()
    assert torch.equal(probs[:3], model(hidden)[:3].exp())
    assert torch.allclose(probs[3:5], model(hidden)[3:5].exp(), rtol=0, atol=1e-4)
    assert torch.allclose(probs.sum(1), torch.ones(6, dtype=torch.float64))


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
    backwards = inputs.flip(1)
    assert torch.allclose(model(backwards).exp().sum(1), torch.ones(64, dtype=torch.float64))
