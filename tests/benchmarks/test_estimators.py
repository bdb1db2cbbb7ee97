import pytest
import torch

from benchmarks.estimators import compared, estimators
from data.play.scoring import score
from data.protocol import ValidationSet, protocol_masks
from data.vocabulary import Vocabulary
from tests.data.play.test_floor import random_automaton
from writing.truth import TruePosterior


def test_of_the_exact_posterior_only_likelihoods_are_exact():
    """The pseudo-log-likelihood is too low, and the unweighted mean over all masked characters is too high."""
    automaton = random_automaton(seed=3, n_states=4)
    vocabulary = Vocabulary(automaton.alphabet)
    windows = vocabulary.encode(automaton.write(256 * 4, seed=0)).view(4, 256)
    truth = TruePosterior(automaton, vocabulary)
    exact = score(truth.floor, truth.to_floor(windows)).nats_per_character
    found = estimators(ValidationSet(windows, protocol_masks(4)), vocabulary.mask_token, vocabulary.n_ordinary)
    of = {name: compared(estimate(truth), exact) for name, estimate in found.items() if "written" not in name}
    nats = {name: row["nats"] for name, row in of.items()}
    assert nats["any-order bound"] == pytest.approx(exact.mean().item(), rel=0.05)
    assert nats["pseudo-log-likelihood: one masked at a time"] < nats["15% masked: loss.valid"] < 0.99 * exact.mean()
    assert nats["the bound's masks, all masked characters alike"] > exact.mean()


def test_the_exact_value_differs_from_itself_by_nothing():
    """And if each window counts with its number of characters, so does its standard error."""
    exact = torch.tensor([0.5, 0.7, 1.2], dtype=torch.float64)
    assert compared((exact * 8, torch.full((3,), 8)), exact) == {
        "nats": pytest.approx(0.8),
        "error": pytest.approx(0, abs=1e-12),
        "error_stderr": pytest.approx(0, abs=1e-12),
    }
    twice = compared((exact * 16, torch.full((3,), 8)), exact)
    assert twice["error"] == pytest.approx(0.8)
    assert twice["error_stderr"] == pytest.approx(exact.std().item() / 3**0.5)
