from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
import torch

from data.corpus import load_corpus
from data.play.automaton import Automaton
from data.play.floor import Floor, channel
from data.protocol import validation_set
from data.references.counting import count
from data.vocabulary import Vocabulary
from tests.data.masking.helpers import generator

MASK = 3  # of an automaton with three characters


def random_automaton(seed, n_states=5, n_chars=3):
    draws = np.random.default_rng(seed)
    more = draws.integers(0, n_chars, n_states - n_chars)
    characters = "abc"[:n_chars] + "".join("abc"[i] for i in more)
    rows = draws.dirichlet(np.full(n_states, 0.5), size=n_states)
    return Automaton(characters, tuple(dict(enumerate(row)) for row in rows.tolist()))


def paths(automaton, length):
    """All sequences of states: the ids of their characters, and their probabilities."""
    transitions = automaton.transitions().to_dense().tolist()
    start = automaton.stationary().tolist()
    ids = [automaton.alphabet.index(character) for character in automaton.characters]
    for states in product(range(len(ids)), repeat=length):
        probability = start[states[0]]
        for before, after in pairwise(states):
            probability *= transitions[before][after]

        yield [ids[state] for state in states], probability


def probabilities(automaton, length):
    """P(text) of all texts of a length, `[n_chars] * length`, from the probabilities of all
    sequences of states."""
    of_texts = torch.zeros([len(automaton.alphabet)] * length).double()
    for ids, probability in paths(automaton, length):
        of_texts[tuple(ids)] += probability

    return of_texts


def by_enumeration(automaton, shown, misprint_prob):
    """P(character | everything shown) at all positions and P(shown), from the probabilities of all
    state sequences."""
    given = channel(len(automaton.alphabet), misprint_prob)
    joint = torch.zeros(len(shown), len(given[0])).double()
    places = torch.arange(len(shown))
    for ids, probability in paths(automaton, len(shown)):
        joint[places, ids] += probability * given[shown, ids].prod()

    return joint / joint.sum(1, keepdim=True), joint[0].sum().item()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("misprint_prob", [0.0, 0.2])
def test_posteriors_and_probabilities_equal_enumeration(seed, misprint_prob):
    """All positions are wanted, hidden ones and visible ones; several windows are one batch."""
    automaton = random_automaton(seed, n_states=4)
    ids = Vocabulary(automaton.alphabet).encode(automaton.write(40, seed)).view(10, 4)
    hidden = torch.rand(ids.shape, generator=generator(seed)) < 0.5
    shown = ids.masked_fill(hidden, MASK)

    floor = Floor(automaton)
    everywhere = torch.ones_like(hidden)
    posteriors = floor.posteriors(shown, everywhere, misprint_prob).view(10, 4, 3)
    log_probs = floor.log_probability(shown)

    for window, posterior, log_prob in zip(shown, posteriors, log_probs, strict=True):
        expected, probability = by_enumeration(automaton, window, misprint_prob)

        assert torch.allclose(posterior, expected, rtol=0, atol=1e-12)
        assert misprint_prob or log_prob.exp() == pytest.approx(probability, abs=1e-12)


def test_losses_are_those_of_the_true_characters_at_masked_positions():
    automaton = random_automaton(0)
    windows = Vocabulary(automaton.alphabet).encode(automaton.write(60, 0)).view(10, 6)
    masked = torch.tensor([False, True, True, False, True, False]).expand(10, 6)
    posteriors = Floor(automaton).posteriors(windows.masked_fill(masked, MASK), masked)
    truth = posteriors[torch.arange(30), windows[masked]]

    losses = Floor(automaton).losses(windows, masked)

    elsewhere = torch.zeros(10, 6).double()
    assert losses.equal(elsewhere.masked_scatter(masked, -truth.log()))


def test_an_impossible_text_has_the_probability_0_and_no_losses():
    # b never follows b
    automaton = Automaton("aab", ({1: 1.0}, {0: 0.25, 2: 0.75}, {0: 0.5, 1: 0.5}))
    # id 3 is a foreign character
    texts = torch.tensor([[0, 1, 1, 0, 0], [0, 0, 0, 0, 1], [0, 3, 0, 0, 1]])
    log_probs = Floor(automaton).log_probability(texts)

    assert log_probs.isfinite().tolist() == [False, True, False]

    with pytest.raises(ValueError, match="cannot generate this text"):
        Floor(automaton).losses(texts[:1], torch.zeros(1, 5).bool())


def test_beliefs_sum_the_posterior_over_the_states_of_a_value():
    """An automaton that writes another character in each state knows the states."""
    automaton = random_automaton(4)
    values = ["x", "y", "x", None, "y"]  # of each state
    descriptions = [{"kind": value} if value else {} for value in values]
    described = replace(automaton, descriptions=descriptions)
    shown = torch.tensor([0, MASK, 2, MASK, 1])
    written = torch.tensor([automaton.alphabet.index(c) for c in automaton.characters])

    states = torch.tensor(list(product(range(5), repeat=5)))
    fits = (shown == written[states]) | (shown == MASK)
    fitting = states[fits.all(1)]
    of_states = Floor(replace(automaton, characters="01234"))
    weights = of_states.log_probability(fitting).softmax(0)

    expected = torch.zeros(5, 3).double()  # of none, x, and y
    for state, value in enumerate(values):
        column = [None, "x", "y"].index(value)
        is_state = fitting == state
        expected[:, column] += (is_state * weights[:, None]).sum(0)

    floor = Floor(described)

    assert floor.values("kind") == ["none", "x", "y"]

    beliefs = floor.beliefs(shown[None], torch.ones(1, 5).bool(), "kind")

    assert torch.allclose(beliefs, expected, rtol=0, atol=1e-12)

    with pytest.raises(ValueError, match="no distinction 'mood'"):
        floor.values("mood")


def mixed(automaton, other, share):
    """An automaton with the characters of the first, and a share of the probabilities of the other."""
    successors = []
    for one, two in zip(automaton.successors, other.successors, strict=True):
        successors.append({t: (1 - share) * one[t] + share * two[t] for t in one})

    return Automaton(automaton.characters, tuple(successors))


def losses_of(automaton, other, n_windows, seed):
    """The losses of windows of 64 characters that the automaton writes, under itself and under
    another one."""
    ids = Vocabulary(automaton.alphabet).encode(automaton.write(64 * n_windows, seed))
    windows = ids.view(n_windows, 64)
    scored = torch.rand(windows.shape, generator=generator(seed)) < 0.15

    losses = []
    for each in (automaton, other):
        losses.append(Floor(each).losses(windows, scored).sum(1).numpy())

    return losses


def test_the_play_is_worth_learning():
    """Its floor is well above 0, counting does not reach it, and long windows have a lower floor
    than short ones."""
    play = load_corpus("play")
    vocabulary = Vocabulary(play.counts)
    validation = validation_set(vocabulary.encode(play.validation))
    windows = validation.windows[::16]
    masked = validation.masked[::16]

    floor = Floor(play.automaton)

    assert floor.n_chars == vocabulary.n_ordinary

    training = vocabulary.encode(play.training).numpy()
    counted = count(training, windows.numpy(), masked.numpy(), floor.n_chars)
    counting = counted.losses.mean()

    def mean_loss(seq_len):
        cut = (windows.reshape(-1, seq_len), masked.reshape(-1, seq_len))
        return floor.losses(*cut).sum() / masked.sum()

    long = mean_loss(256)
    short = mean_loss(32)

    assert 0.5 <= long <= counting - 0.25
    assert long <= short - 0.03
