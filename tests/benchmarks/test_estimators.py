import pytest

from benchmarks.estimators import estimators
from data.play.scoring import score
from data.protocol import ValidationSet, protocol_masks
from data.vocabulary import Vocabulary
from tests.data.play.test_floor import random_automaton
from writing.truth import TruePosterior


def test_of_the_exact_posterior_only_likelihoods_are_exact():
    """The pseudo-log-likelihood is too low, and the unweighted mean over all masked characters is too high."""
    automaton = random_automaton(seed=3, n_states=4)
    vocabulary = Vocabulary(automaton.alphabet)
    windows = vocabulary.encode(automaton.write(256 * 16, seed=0)).view(16, 256)
    truth = TruePosterior(automaton, vocabulary)
    exact = score(truth.floor, truth.to_floor(windows)).nats_per_character.mean().item()
    found = estimators(ValidationSet(windows, protocol_masks(16)), vocabulary.mask_token, vocabulary.n_ordinary)
    of = {name: estimate(truth) for name, estimate in found.items() if "written" not in name}
    assert of["any-order bound"] == pytest.approx(exact, rel=0.03)
    assert of["pseudo-log-likelihood: one masked at a time"] < of["15% masked: loss.valid"] < 0.99 * exact
    assert of["all masked characters, at all rates"] > exact
    assert found["written one at a time, left-to-right"](truth) == pytest.approx(exact, abs=1e-9)
