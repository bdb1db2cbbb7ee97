"""Likelihoods against brute force on a tiny automaton, with the exact posterior in place of the
network."""

from itertools import combinations, product

import pytest
import torch

from data.play.automaton import Automaton
from data.vocabulary import Vocabulary
from tests.data.play.test_floor import probabilities
from tests.writing.conftest import flattened, generators
from training.callbacks.any_order_bound import any_order_bound
from writing.measures import order_losses
from writing.sampler import ORDERS, Sampler
from writing.truth import TruePosterior

LENGTH = 4
AUTOMATON = Automaton(
    "abca",
    ({0: 0.2, 1: 0.5, 2: 0.3}, {2: 0.6, 3: 0.4}, {0: 0.9, 1: 0.1}, {1: 0.7, 2: 0.3}),
)
VOCABULARY = Vocabulary(AUTOMATON.alphabet)
TRUTH = TruePosterior(AUTOMATON, VOCABULARY)
TEXTS = torch.tensor(list(product(range(3), repeat=LENGTH)))


def all_masks():
    """Every mask, repeated so that every number of masked positions is as frequent: `[n_rounds, 1,
    LENGTH]`."""
    masks = []
    for n in range(1, LENGTH + 1):
        chosen = list(combinations(range(LENGTH), n))
        for columns in chosen * (12 // len(chosen)):
            masks.append([column in columns for column in range(LENGTH)])

    return torch.tensor(masks)[:, None]


def possible():
    """All texts that the automaton can write, and their nats per character."""
    log_probs = probabilities(AUTOMATON, LENGTH).flatten().log()
    kept = log_probs.isfinite()

    assert log_probs.exp().sum() == pytest.approx(1)

    return TEXTS[kept], -log_probs[kept] / LENGTH


def nats(model, texts):
    """The nats per character of each text in every order, and their any-order bound."""
    masks = all_masks().expand(-1, len(texts), -1)
    losses = {"bound": any_order_bound(model, texts, masks, VOCABULARY.mask_token)}

    for order in ORDERS:
        sampler = Sampler(model, VOCABULARY.mask_token, VOCABULARY.n_ordinary, order)
        losses[order] = order_losses(sampler, texts, generators(len(texts))).mean(1)

    return losses


def test_every_order_and_the_bound_give_the_truth_its_own_likelihood():
    texts, expected = possible()
    for losses in nats(TRUTH, texts).values():
        torch.testing.assert_close(losses, expected, rtol=0, atol=1e-9)


def test_a_perturbed_model_has_a_higher_bound_and_a_higher_loss_in_every_order():
    """And orders differ where conditionals do not fit together."""
    texts, expected = possible()
    weights = (-expected * LENGTH).exp()  # the mean over texts of the automaton
    by_order = nats(flattened(TRUTH, 0.5), texts)

    for losses in by_order.values():
        assert (weights * (losses - expected)).sum() > 0.01

    assert (
        by_order["left-to-right"] - by_order["confidence"]
    ).abs().max() > 0.01 / LENGTH
