from dataclasses import replace

import pytest
import torch

from data.play.automaton import Automaton, Builder
from tests.data.play.test_floor import probabilities


def words(weights):
    build = Builder()
    start, end = build.joints(2)
    build.choice(start, weights, end)
    build.text(end, " ", start)
    return build.automaton(start)


def test_words_are_written_with_their_weights():
    automaton = words({"bal": 3, "ban": 1, "kor": 4})
    # common beginnings are shared
    assert len(automaton.characters) == len("ba") + len("ln") + len("kor") + len(" ")
    rows = automaton.transitions().to_dense().sum(1)
    assert torch.allclose(rows, torch.ones_like(rows))
    written = automaton.write(400_000, seed=0).split(" ")[1:-1]
    for word, share in {"bal": 3 / 8, "ban": 1 / 8, "kor": 1 / 2}.items():
        standard_error = (share * (1 - share) / len(written)) ** 0.5
        assert abs(written.count(word) / len(written) - share) < 4 * standard_error


def test_an_empty_text_skips_to_the_end_of_a_choice():
    written = set(words({"a": 1, "": 1}).write(10_000, seed=0).split("a"))
    assert {" ", "  "} <= written


def test_the_same_seed_writes_the_same_text_and_a_longer_one_continues_it():
    automaton = words({"bal": 3, "ban": 1})
    assert automaton.write(500, seed=1) == automaton.write(1_000, seed=1)[:500]
    assert automaton.write(500, seed=1) != automaton.write(500, seed=2)


def test_merging_keeps_the_probability_of_every_text():
    automaton = words({"bal": 2, "kal": 1, "ban": 3, "oo": 2})
    merged = automaton.merged()
    # the two l are one
    assert len(merged.characters) == len("ba") + len("ka") + len("ln") + len("oo") + len(" ")
    after = probabilities(merged, 4)
    assert torch.allclose(after, probabilities(automaton, 4), rtol=0, atol=1e-12)
    assert merged.merged() == merged


def test_states_have_the_description_of_their_builder():
    build = Builder()
    start, middle = build.joints(2)
    greeting = build.describing(kind="greeting")
    greeting.text(start, "a", middle, 0.5, number="one")
    greeting.text(start, "b", middle, 0.5)
    build.text(middle, " ", start)
    automaton = build.automaton(start)
    described = dict(zip(automaton.characters, automaton.descriptions, strict=True))
    assert described == {
        "a": {"kind": "greeting", "number": "one"},
        "b": {"kind": "greeting"},
        " ": {},
    }


def test_states_with_different_descriptions_are_not_merged():
    alike = Automaton("aab", ({2: 1.0}, {2: 1.0}, {0: 0.5, 1: 0.5}))
    assert len(alike.merged().characters) == 2
    described = replace(alike, descriptions=({"number": "one"}, {"number": "two"}, {}))
    assert described.merged() == described


def test_a_chain_without_convergence_is_an_error():
    two = Automaton("ab", ({1: 1.0}, {0: 1.0}))
    assert two.stationary().tolist() == [0.5, 0.5]  # the iteration begins with this distribution
    with pytest.raises(ArithmeticError, match="does not converge"):
        Automaton("abc", ({1: 1.0}, {0: 1.0}, {0: 1.0})).stationary(max_steps=1_000)
