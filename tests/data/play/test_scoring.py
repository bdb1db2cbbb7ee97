from itertools import pairwise, product

import pytest
import torch

from data.play.automaton import Automaton
from data.play.floor import Floor
from data.play.scoring import conditional_losses, log_probability, score
from tests.data.play.test_floor import random_automaton

MASK, FOREIGN = 3, 4  # of an automaton with three characters


def by_enumeration(automaton: Automaton, shown: list[int]) -> float:
    """P(visible characters), from the probabilities of all sequences of states."""
    transitions, start = automaton.transitions().to_dense(), automaton.stationary()
    chars = [automaton.alphabet.index(character) for character in automaton.characters]
    total = 0.0
    for states in product(range(len(chars)), repeat=len(shown)):
        if all(seen in (chars[state], MASK) for seen, state in zip(shown, states, strict=True)):
            steps = torch.stack([transitions[before, after] for before, after in pairwise(states)])
            total += float(start[states[0]] * steps.prod())
    return total


@pytest.mark.parametrize("seed", range(3))
def test_log_probability_equals_enumeration(seed: int):
    automaton = random_automaton(seed)
    shown = torch.randint(0, 4, (20, 5), generator=torch.Generator().manual_seed(seed))
    expected = torch.tensor([by_enumeration(automaton, row.tolist()) for row in shown], dtype=torch.float64)
    assert torch.allclose(log_probability(Floor(automaton), shown), expected.log(), rtol=0, atol=1e-12)


def test_conditional_losses_are_ratios_of_probabilities():
    floor = Floor(random_automaton(1))
    ids = torch.tensor(list(product(range(3), repeat=4)))
    losses = conditional_losses(floor, ids)
    for t in range(4):
        before = log_probability(floor, ids.clone().index_fill_(1, torch.arange(t, 4), MASK))
        until = log_probability(floor, ids.clone().index_fill_(1, torch.arange(t + 1, 4), MASK))
        assert torch.allclose(losses[:, t], before - until, rtol=0, atol=1e-12)
    assert (-losses.sum(1)).exp().sum().item() == pytest.approx(1, abs=1e-12)


def test_an_impossible_text_scores_minus_infinity_from_its_first_impossible_character():
    automaton = Automaton("aab", ({1: 1.0}, {0: 0.25, 2: 0.75}, {0: 0.5, 1: 0.5}))  # b never follows b
    texts = torch.tensor([[0, 1, 1, 0, 0], [0, 0, 0, 0, 1], [0, 3, 0, 1, 1]])  # id 3 is a foreign character
    scores = score(Floor(automaton), texts)
    assert scores.first_impossible.tolist() == [2, 5, 1]
    assert scores.is_possible.tolist() == [False, True, False]
    assert scores.losses[0].isinf().tolist() == [False, False, True, False, False]
    assert scores.losses[0].isnan().tolist() == [False, False, False, True, True]
    nats = scores.nats_per_character
    assert nats[0] == nats[2] == torch.inf
    assert nats[1].item() == pytest.approx(-log_probability(Floor(automaton), texts[1:2]).item() / 5)
    assert log_probability(Floor(automaton), texts[:1]).item() == -torch.inf


def test_mask_stands_for_any_character_and_a_foreign_one_for_none():
    floor = Floor(random_automaton(2))
    assert log_probability(floor, torch.full((1, 7), MASK)).item() == 0
    assert log_probability(floor, torch.tensor([[MASK, FOREIGN, MASK]])).item() == -torch.inf
