from dataclasses import replace

import pytest
import torch

from data.play.automaton import Automaton, Builder
from tests.data.masking.helpers import within_four_standard_errors
from tests.data.play.test_floor import probabilities


def words(weights):
    build = Builder()
    start, end = build.joints(2)
    build.choice(start, weights, end)
    build.text(end, " ", start)
    return build.automaton(start)


def test_words_are_written_with_their_weights():
    weights = {"bal": 3, "ban": 1, "kor": 4}
    automaton = words(weights)

    assert len(automaton.characters) == len("baln kor")  # common beginnings are shared
    assert automaton.transitions().to_dense().sum(1).tolist() == pytest.approx([1] * 8)

    written = automaton.write(400_000, seed=0).split(" ")[1:-1]
    for word, weight in weights.items():
        n_written = written.count(word)
        assert within_four_standard_errors(n_written, len(written), weight / 8)


def test_the_same_seed_writes_the_same_text_and_a_longer_one_continues_it():
    automaton = words({"bal": 3, "ban": 1})
    assert automaton.write(500, seed=1) == automaton.write(1_000, seed=1)[:500]
    assert automaton.write(500, seed=1) != automaton.write(500, seed=2)


def test_merging_keeps_the_probability_of_every_text():
    automaton = words({"bal": 2, "kal": 1, "ban": 3, "oo": 2})
    merged = automaton.merged()

    assert len(merged.characters) == len("bakaln oo")  # the two l are one

    after = probabilities(merged, 4)

    assert torch.allclose(after, probabilities(automaton, 4), rtol=0, atol=1e-12)
    assert merged.merged() == merged


def test_states_with_different_descriptions_are_not_merged():
    alike = Automaton("aab", ({2: 1.0}, {2: 1.0}, {0: 0.5, 1: 0.5}))
    assert len(alike.merged().characters) == 2

    described = replace(alike, descriptions=({"number": "one"}, {"number": "two"}, {}))

    assert described.merged() == described


def test_a_chain_without_convergence_is_an_error():
    two = Automaton("ab", ({1: 1.0}, {0: 1.0}))
    # the iteration begins with this distribution
    assert two.stationary().tolist() == [0.5, 0.5]

    three = Automaton("abc", ({1: 1.0}, {0: 1.0}, {0: 1.0}))

    with pytest.raises(ArithmeticError, match="does not converge"):
        three.stationary(max_steps=1_000)
