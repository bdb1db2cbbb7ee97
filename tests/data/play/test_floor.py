import math
from collections.abc import Iterator
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

MASK = 3  # of an automaton with three characters


def random_automaton(seed: int, n_states: int = 5, n_chars: int = 3) -> Automaton:
    generator = np.random.default_rng(seed)
    characters = "".join(
        "abc"[i] for i in [*range(n_chars), *generator.integers(0, n_chars, n_states - n_chars)]
    )
    rows = generator.dirichlet(np.full(n_states, 0.5), size=n_states)
    return Automaton(characters, tuple({t: float(p) for t, p in enumerate(row)} for row in rows))


def paths(automaton: Automaton, length: int) -> Iterator[tuple[list[int], float]]:
    """All sequences of states: the ids of their characters, and their probabilities."""
    transitions, start = (
        automaton.transitions().to_dense().tolist(),
        automaton.stationary().tolist(),
    )
    chars = [automaton.alphabet.index(character) for character in automaton.characters]
    for states in product(range(len(chars)), repeat=length):
        steps = [transitions[before][after] for before, after in pairwise(states)]
        yield [chars[state] for state in states], math.prod([start[states[0]], *steps])


def probabilities(automaton: Automaton, length: int) -> torch.Tensor:
    """P(text) of all texts of a length, `[n_chars] * length`, from the probabilities of all
    sequences of states."""
    found = torch.zeros([len(automaton.alphabet)] * length, dtype=torch.float64)
    for ids, probability in paths(automaton, length):
        found[tuple(ids)] += probability
    return found


def by_enumeration(
    automaton: Automaton, shown: np.ndarray, misprint_prob: float
) -> tuple[np.ndarray, float]:
    """P(character | everything shown) at all positions and P(shown), from the probabilities of all
    state sequences."""
    likelihoods = channel(len(automaton.alphabet), misprint_prob)[torch.as_tensor(shown)].numpy()
    ids, weights = (np.array(part) for part in zip(*paths(automaton, len(shown)), strict=True))
    weights = weights * likelihoods[np.arange(len(shown)), ids].prod(1)
    posterior = np.stack(
        [np.bincount(column, weights, len(automaton.alphabet)) for column in ids.T]
    )
    return posterior / posterior.sum(1, keepdims=True), posterior[0].sum()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("misprint_prob", [0.0, 0.2])
def test_posteriors_and_probabilities_equal_enumeration(seed: int, misprint_prob: float):
    """All positions are wanted, hidden ones and visible ones; several windows are one batch."""
    automaton = random_automaton(seed)
    shown = Vocabulary(automaton.alphabet).encode(automaton.write(60, seed)).view(12, 5)
    shown = shown.masked_fill(
        torch.rand(shown.shape, generator=torch.Generator().manual_seed(seed)) < 0.5, MASK
    )
    floor = Floor(automaton)
    posteriors = floor.posteriors(
        shown, torch.ones_like(shown, dtype=torch.bool), misprint_prob
    ).view(12, 5, 3)
    log_probs = floor.log_probability(shown)
    for window, found, log_prob in zip(
        shown.numpy(), posteriors.numpy(), log_probs.tolist(), strict=True
    ):
        expected, probability = by_enumeration(automaton, window, misprint_prob)
        assert np.abs(found - expected).max() < 1e-12
        assert misprint_prob or log_prob == pytest.approx(math.log(probability), rel=0, abs=1e-12)


def test_losses_are_those_of_the_true_characters_at_masked_positions():
    automaton = random_automaton(0)
    windows = Vocabulary(automaton.alphabet).encode(automaton.write(60, 0)).view(10, 6)
    masked = torch.tensor([False, True, True, False, True, False]).expand(10, 6)
    posteriors = Floor(automaton).posteriors(windows.masked_fill(masked, MASK), masked)
    truth = posteriors[torch.arange(30), windows[masked]]
    losses = Floor(automaton).losses(windows, masked)
    assert torch.equal(losses, torch.zeros(10, 6).double().masked_scatter(masked, -truth.log()))


def test_an_impossible_text_has_the_probability_0_and_no_losses():
    # b never follows b
    automaton = Automaton("aab", ({1: 1.0}, {0: 0.25, 2: 0.75}, {0: 0.5, 1: 0.5}))
    # id 3 is a foreign character
    texts = torch.tensor([[0, 1, 1, 0, 0], [0, 0, 0, 0, 1], [0, 3, 0, 0, 1]])
    assert Floor(automaton).log_probability(texts).isfinite().tolist() == [False, True, False]
    with pytest.raises(ValueError, match="cannot generate this text"):
        Floor(automaton).losses(texts[:1], torch.zeros(1, 5, dtype=torch.bool))


def test_beliefs_sum_the_posterior_over_the_states_of_a_value():
    """The value of a state that writes a is one of a1 and a2: an automaton that writes two kinds of
    a knows them."""
    automaton = random_automaton(4)
    kinds = [c + str(automaton.characters[:s].count(c)) for s, c in enumerate(automaton.characters)]
    described = replace(
        automaton, descriptions=tuple({"kind": kind} if kind != "b0" else {} for kind in kinds)
    )
    all_visible = Automaton(
        "".join(chr(ord("0") + s) for s in range(len(kinds))), automaton.successors
    )
    shown = torch.tensor([0, 3, 2, 3, 1])
    states = torch.tensor(list(product(range(len(kinds)), repeat=5)))
    written = torch.tensor(
        [automaton.alphabet.index(character) for character in automaton.characters]
    )[states]
    fits = ((shown == written) | (shown == 3)).all(1)  # each state writes what is shown
    probabilities = Floor(all_visible).log_probability(states[fits]).exp()
    one_hot = torch.nn.functional.one_hot(states[fits], len(kinds))
    posterior = (probabilities[:, None, None] * one_hot).sum(0).numpy()
    floor = Floor(described)
    values = floor.values("kind")
    assert values == sorted({*kinds, "none"} - {"b0"})
    beliefs = floor.beliefs(shown[None], torch.ones(1, 5, dtype=torch.bool), "kind").numpy()
    columns = [values.index(kind if kind != "b0" else "none") for kind in kinds]
    expected = posterior / posterior.sum(1, keepdims=True)
    assert np.abs(beliefs[:, columns] - expected).max() < 1e-12
    with pytest.raises(ValueError, match="no distinction 'mood'"):
        floor.values("mood")


def mixed(automaton: Automaton, other: Automaton, share: float) -> Automaton:
    """An automaton with the characters of the first, and a share of the probabilities of the other."""
    rows = zip(automaton.successors, other.successors, strict=True)
    return Automaton(
        automaton.characters,
        tuple({t: (1 - share) * one[t] + share * two[t] for t in one} for one, two in rows),
    )


def losses_of(
    automaton: Automaton, other: Automaton, n_windows: int, seed: int
) -> list[np.ndarray]:
    """The losses of windows of 64 characters that the automaton writes, under itself and under
    another one."""
    ids = (
        Vocabulary(automaton.alphabet)
        .encode(automaton.write(64 * n_windows, seed))
        .view(n_windows, 64)
    )
    scored = torch.rand(ids.shape, generator=torch.Generator().manual_seed(seed)) < 0.15
    return [Floor(each).losses(ids, scored).sum(1).numpy() for each in (automaton, other)]


def test_the_play_is_worth_learning():
    """Its floor is well above 0, counting does not reach it, and long windows have a lower floor
    than short ones."""
    play = load_corpus("play")
    vocabulary = Vocabulary(play.counts)
    validation = validation_set(vocabulary.encode(play.validation))
    windows, masked = validation.windows[::16], validation.masked[::16]
    floor = Floor(play.automaton)
    assert floor.n_chars == vocabulary.n_ordinary

    def lowest(seq_len: int) -> float:
        ids, hidden = windows.reshape(-1, seq_len), masked.reshape(-1, seq_len)
        return float(floor.losses(ids, hidden).sum() / hidden.sum())

    counting = count(
        vocabulary.encode(play.training).numpy(), windows.numpy(), masked.numpy(), floor.n_chars
    )
    long, short = lowest(256), lowest(32)
    assert long >= 0.5
    assert counting.losses.mean() >= long + 0.25
    assert long <= short - 0.03
