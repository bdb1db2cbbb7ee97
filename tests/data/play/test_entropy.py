import math

import pytest

from data.play.automaton import Automaton
from data.play.entropy import determinized, entropy_rate
from data.play.grammar import grammar, play
from data.tasks.play import floor
from data.vocabulary import Vocabulary
from tests.data.play.test_automaton import words
from writing.judge import cut


def test_the_rate_of_words_is_their_entropy_per_character():
    """`words` shares common beginnings, so its text determines its states."""
    weights = {"bal": 0.3, "ban": 0.1, "oo": 0.6}
    entropy = -sum(p * math.log(p) for p in weights.values())
    length = sum(p * len(word + " ") for word, p in weights.items())

    assert entropy_rate(words(weights)) == pytest.approx(entropy / length, abs=1e-12)


def test_the_rate_does_not_depend_on_hidden_choices():
    """The first t belongs to `ta` or to `te`, which the text does not show before the next
    character."""
    hidden = Automaton(
        "ttae ", ({2: 1.0}, {3: 1.0}, {4: 1.0}, {4: 1.0}, {0: 0.3, 1: 0.6, 4: 0.1})
    )
    shown = Automaton(
        "tae ", ({1: 1 / 3, 2: 2 / 3}, {3: 1.0}, {3: 1.0}, {0: 0.9, 3: 0.1})
    )

    assert entropy_rate(hidden) == pytest.approx(entropy_rate(shown), abs=1e-12)


def test_beliefs_that_do_not_close_are_an_error(monkeypatch):
    """Both states can write any number of a, and each a changes their probabilities."""
    never_sure = Automaton(
        "baa", ({1: 0.5, 2: 0.5}, {1: 0.9, 0: 0.1}, {2: 0.6, 0: 0.4})
    )
    monkeypatch.setattr("data.play.entropy.MAX_BELIEFS", 50)
    with pytest.raises(ArithmeticError, match="do not close: there are more than 50"):
        determinized(never_sure)


def test_the_entropy_rate_is_the_mean_loss_of_the_play_under_its_grammar():
    ids = Vocabulary(grammar().alphabet).encode(play(32 * 600, seed=5)).view(32, 600)
    losses, is_cut = cut(floor(), ids)

    assert not is_cut.any()

    losses = losses[:, 200:].mean(1)  # by then, the state is known
    standard_error = losses.std() / 32**0.5
    rate = entropy_rate(grammar())

    assert rate == pytest.approx(0.72936867, abs=1e-8)
    assert standard_error < 0.01 * rate
    assert abs(losses.mean() - rate) < 4 * standard_error
