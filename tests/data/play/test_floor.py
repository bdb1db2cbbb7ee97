import math
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
import torch

from data.corpus import load_corpus
from data.counting import count
from data.play.automaton import Automaton
from data.play.floor import Channel, Floor, corrupted_channel, hiding_channel, masked_channel
from data.play.scoring import log_probability
from data.protocol import validation_set
from data.vocabulary import Vocabulary


def random_automaton(seed: int, n_states: int = 5, n_chars: int = 3) -> Automaton:
    generator = np.random.default_rng(seed)
    characters = "".join("abc"[i] for i in [*range(n_chars), *generator.integers(0, n_chars, n_states - n_chars)])
    rows = generator.dirichlet(np.full(n_states, 0.5), size=n_states)
    return Automaton(characters, tuple({t: float(p) for t, p in enumerate(row)} for row in rows))


def by_enumeration(automaton: Automaton, shown, scored, channel: Channel) -> np.ndarray:
    """The same posterior at all positions, from the probabilities of all sequences of states."""
    transitions, start = automaton.transitions().to_dense().numpy(), automaton.stationary().numpy()
    chars = [automaton.alphabet.index(character) for character in automaton.characters]
    posterior = np.zeros((len(shown), len(automaton.alphabet)))
    for states in product(range(len(automaton.characters)), repeat=len(shown)):
        probability = start[states[0]]
        for before, after in pairwise(states):
            probability *= transitions[before, after]
        for t, state in enumerate(states):
            matrix = channel.scored if scored[t] else channel.elsewhere
            probability *= matrix[shown[t], chars[state]].item()
        for t, state in enumerate(states):
            posterior[t, chars[state]] += probability
    return posterior / posterior.sum(1, keepdims=True)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", ["masks", "corruption"])
def test_forward_backward_equals_enumeration(seed: int, kind: str):
    automaton = random_automaton(seed)
    generator = np.random.default_rng(100 + seed)
    window = Vocabulary(automaton.alphabet).encode(automaton.write(6, seed)).numpy()
    n_chars = len(automaton.alphabet)
    scored = np.array([False, True, True, False, True, False])
    shown = window.copy()
    if kind == "masks":
        channel = masked_channel(n_chars)
        shown[scored] = n_chars
    else:  # masks, random replacements and kept characters, at scored positions and elsewhere
        channel = corrupted_channel(n_chars, masking_prob=0.4, randomize_prob=0.3, no_change_prob=0.2)
        shown = generator.integers(0, n_chars + 1, size=6)
        shown[0], shown[1], shown[2] = window[0], n_chars, window[2]
    expected = by_enumeration(automaton, shown, scored, channel)
    window, shown, scored = (torch.from_numpy(array)[None] for array in (window, shown, scored))
    posteriors = Floor(automaton).posteriors(shown, scored, channel)
    assert np.abs(posteriors.numpy() - expected[scored[0]]).max() < 1e-12
    losses = Floor(automaton).losses(window, shown, scored, channel)[0]
    truth = posteriors[torch.arange(3), window[scored]]
    assert torch.equal(losses, torch.zeros(6).double().masked_scatter(scored[0], -truth.log()))


@pytest.mark.parametrize("misprint_prob", [0.0, 0.2])
def test_posteriors_of_a_text_with_holes_equal_enumeration(misprint_prob: float):
    """All positions are wanted, hidden ones and visible ones; several windows are one batch."""
    automaton = random_automaton(3)
    channel = hiding_channel(3, misprint_prob)
    shown = Vocabulary(automaton.alphabet).encode(automaton.write(60, 3)).view(12, 5)
    shown = shown.masked_fill(torch.rand(shown.shape, generator=torch.Generator().manual_seed(0)) < 0.5, 3)
    wanted = torch.ones_like(shown, dtype=torch.bool)
    posteriors = Floor(automaton).posteriors(shown, wanted, channel).view(12, 5, 3)
    for window, found in zip(shown.numpy(), posteriors.numpy(), strict=True):
        expected = by_enumeration(automaton, window, np.ones(5, dtype=bool), channel)
        assert np.abs(found - expected).max() < 1e-12


def test_beliefs_sum_the_posterior_over_the_states_of_a_value():
    """The value of a state that writes a is one of a1 and a2: an automaton that writes two kinds of a knows them."""
    automaton = random_automaton(4)
    kinds = [c + str(automaton.characters[:s].count(c)) for s, c in enumerate(automaton.characters)]
    described = replace(automaton, descriptions=tuple({"kind": kind} if kind != "b0" else {} for kind in kinds))
    all_visible = Automaton("".join(chr(ord("0") + s) for s in range(len(kinds))), automaton.successors)
    shown = torch.tensor([0, 3, 2, 3, 1])
    posterior = np.zeros((5, len(kinds)))
    for states in product(range(len(kinds)), repeat=5):  # their texts fit if each state writes what is shown
        written = torch.tensor([automaton.alphabet.index(automaton.characters[state]) for state in states])
        if ((shown == written) | (shown == 3)).all():
            text = torch.tensor([states])
            posterior[np.arange(5), states] += math.exp(log_probability(Floor(all_visible), text).item())
    floor = Floor(described)
    values = floor.values("kind")
    assert values == sorted({*kinds, "none"} - {"b0"})
    beliefs = floor.beliefs(shown[None], torch.ones(1, 5, dtype=torch.bool), "kind").numpy()
    columns = [values.index(kind if kind != "b0" else "none") for kind in kinds]
    expected = posterior / posterior.sum(1, keepdims=True)
    assert np.abs(beliefs[:, columns] - expected).max() < 1e-12
    with pytest.raises(ValueError, match="no distinction 'mood'"):
        floor.values("mood")


def test_channels_are_probabilities():
    for channel in (masked_channel(4), corrupted_channel(4, 0.15)):
        for matrix in channel.__dict__.values():
            assert torch.allclose(matrix.sum(0), torch.ones(4, dtype=torch.float64))


def test_a_text_that_the_automaton_cannot_write_is_refused():
    automaton = Automaton("ab", ({0: 0.5, 1: 0.5}, {0: 1.0}))  # "bb" is impossible
    window = torch.tensor([[0, 1, 1, 0]])
    with pytest.raises(ValueError, match="cannot have written"):
        Floor(automaton).losses(window, window, torch.zeros_like(window, dtype=torch.bool), masked_channel(2))


def test_nothing_is_below_the_floor_on_average():
    """Any other prediction, here that of a slightly wrong automaton, has a higher loss."""
    automaton = random_automaton(0, n_states=8)
    wrong = random_automaton(1, n_states=8)
    mixed = Automaton(
        automaton.characters,
        tuple(
            {t: 0.9 * p + 0.1 * q for (t, p), q in zip(one.items(), other.values(), strict=True)}
            for one, other in zip(automaton.successors, wrong.successors, strict=True)
        ),
    )
    ids = Vocabulary(automaton.alphabet).encode(automaton.write(64 * 500, seed=3)).view(500, 64)
    scored = torch.rand(ids.shape, generator=torch.Generator().manual_seed(0)) < 0.15
    shown, channel = ids.masked_fill(scored, 3), masked_channel(3)
    right, other = (Floor(each).losses(ids, shown, scored, channel).sum() for each in (automaton, mixed))
    assert right < other


def test_the_play_is_worth_learning():
    """Its floor is well above 0, counting does not reach it, and long windows have a lower floor than short ones."""
    play = load_corpus("play")
    vocabulary = Vocabulary(play.characters)
    validation = validation_set(vocabulary.encode(play.validation))
    windows, masked = validation.windows[::8], validation.masked[::8]
    floor = Floor(play.automaton)
    assert floor.n_chars == vocabulary.n_ordinary

    def lowest(seq_len: int) -> float:
        ids, hidden = windows.reshape(-1, seq_len), masked.reshape(-1, seq_len)
        shown = ids.masked_fill(hidden, floor.n_chars)
        return float(floor.losses(ids, shown, hidden, masked_channel(floor.n_chars)).sum() / hidden.sum())

    counting = count(vocabulary.encode(play.training).numpy(), windows.numpy(), masked.numpy(), floor.n_chars)
    long, short = lowest(256), lowest(32)
    assert long >= 0.5
    assert counting.losses.mean() >= long + 0.25
    assert long <= short - 0.03
