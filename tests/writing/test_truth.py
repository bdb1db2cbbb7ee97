from itertools import product

import pytest
import torch

from data.corpus import load_corpus
from data.vocabulary import Vocabulary
from tests.data.play.test_floor import random_automaton
from writing.truth import TruePosterior

CHARACTERS = "abcx"  # the vocabulary has a character that the automaton does not write


@pytest.fixture
def vocabulary() -> Vocabulary:
    return Vocabulary(CHARACTERS)


def brute_force(model: TruePosterior, inputs: torch.Tensor, vocabulary: Vocabulary) -> torch.Tensor:
    """P(token | visible), `[seq_len, n_tokens]`, from the probabilities of all texts."""
    texts = torch.tensor(list(product(range(vocabulary.n_ordinary), repeat=len(inputs))))
    fits = ((texts == inputs) | (inputs >= vocabulary.n_ordinary)).all(1)
    probs = model.floor.log_probability(model.to_floor(texts)).exp() * fits
    sums = torch.stack([probs @ (texts == token).double() for token in range(vocabulary.n_tokens)], dim=1)
    return sums / probs.sum()


def test_it_is_the_posterior_over_all_texts(vocabulary):
    model = TruePosterior(random_automaton(0), vocabulary)
    inputs = vocabulary.encode("abcbaacb").view(2, 4)
    inputs[0, 1:3] = inputs[1, 0] = inputs[1, 3] = vocabulary.mask_token
    logits = model(inputs)
    assert logits.shape == (8, vocabulary.n_tokens)
    for row, found in zip(inputs, logits.view(2, 4, -1), strict=True):
        assert torch.allclose(found.exp(), brute_force(model, row, vocabulary), rtol=0, atol=1e-12)
    assert logits[:, vocabulary.n_ordinary :].eq(-torch.inf).all()
    assert logits[:, vocabulary.id_of("x")].eq(-torch.inf).all()


def test_positions_choose_rows_in_any_order(vocabulary):
    model = TruePosterior(random_automaton(1), vocabulary)
    inputs = torch.full((3, 5), vocabulary.mask_token)
    inputs[:, 2] = vocabulary.encode("abc")
    for positions in (torch.tensor([14, 0, 7, 3]), torch.tensor([[4, 1], [5, 9], [14, 10]])):
        assert torch.equal(model(inputs, positions), model(inputs)[positions.flatten()])


def test_an_impossible_text_is_explained_by_misprints_and_others_are_exact(vocabulary):
    model = TruePosterior(random_automaton(2), vocabulary)
    mask = vocabulary.mask_token
    inputs = vocabulary.encode("bacxac").view(2, 3)  # x is certainly a misprint
    inputs[:, 1] = mask
    hidden = inputs.where(inputs != vocabulary.id_of("x"), mask)
    probs = model(inputs).exp()
    assert torch.equal(probs[:3], model(hidden)[:3].exp())
    assert torch.allclose(probs[3:5], model(hidden)[3:5].exp(), rtol=0, atol=1e-4)
    assert torch.allclose(probs.sum(1), torch.ones(6, dtype=torch.float64))


def test_it_fits_the_vocabulary_of_the_play():
    corpus = load_corpus("play")
    vocabulary = Vocabulary(corpus.counts)
    model = TruePosterior(corpus.automaton, vocabulary)
    end = corpus.validation.index("?\n\n")
    inputs = vocabulary.encode(corpus.validation[end - 60 : end + 4])[None]
    inputs[0, 60] = vocabulary.mask_token
    assert model(inputs, torch.tensor([60]))[0, vocabulary.id_of("?")].exp() > 0.999
    backwards = inputs.flip(1)
    assert torch.allclose(model(backwards).exp().sum(1), torch.ones(64, dtype=torch.float64))


def test_a_vocabulary_that_cannot_write_the_text_is_refused():
    with pytest.raises(ValueError, match="lacks the character 'c'"):
        TruePosterior(random_automaton(0), Vocabulary("ab"))
