import math

import pytest
import torch

from data.vocabulary import Vocabulary
from tests.data.play.test_floor import random_automaton
from tests.writing.conftest import flattened
from writing.consistency import ORDERS, hidden_spans, joint_consistency
from writing.truth import TruePosterior

AUTOMATON = random_automaton(5, n_states=6)
VOCABULARY = Vocabulary("abc")
N_WINDOWS = 40


@pytest.fixture
def truth():
    return TruePosterior(AUTOMATON, VOCABULARY)


def spans(truth, n, background):
    windows = VOCABULARY.encode(AUTOMATON.write(N_WINDOWS * 12, seed=0)).view(N_WINDOWS, 12)
    generator = torch.Generator().manual_seed(n)
    return hidden_spans(
        truth, windows, VOCABULARY.mask_token, n=n, background=background, generator=generator
    )


def measured(model, hidden):
    return joint_consistency(model, hidden, VOCABULARY, torch.Generator().manual_seed(0))


def numbers(found):
    rows = [*found["kl"].values(), *found["disagreement"].values()]
    return [row["nats"] for row in rows]


@pytest.mark.parametrize("background", [0.0, 0.8])
@pytest.mark.parametrize("n", [1, 2, 6])
def test_the_exact_posterior_is_consistent(truth, n, background):
    found = measured(truth, spans(truth, n, background))
    assert list(found["kl"]) == list(ORDERS)
    assert max(map(abs, numbers(found))) < 1e-9
    assert found["exact"]["nats"] > 0


def test_other_conditionals_disagree(truth):
    found = measured(flattened(truth, 0.3), spans(truth, 6, 0.5))
    for row in found["kl"].values():
        assert row["nats"] > 2 * row["stderr"] > 0
    assert len({round(number, 9) for number in numbers(found)}) == 5
    single = measured(flattened(truth, 0.3), spans(truth, 1, 0.5))
    # a single character has one order
    assert [row["nats"] for row in single["disagreement"].values()] == [0, 0]


def test_spans_are_hidden_and_so_is_a_share_of_the_background(truth):
    hidden = spans(truth, 2, 0.5)
    columns = hidden.orders["left to right"]
    assert (columns[:, 1] == columns[:, 0] + 1).all()
    visible = hidden.inputs != VOCABULARY.mask_token
    assert not visible.gather(1, columns).any()
    assert torch.equal(hidden.inputs[visible], hidden.windows[visible])
    assert math.isclose(visible.double().mean().item(), 0.5 * 10 / 12, abs_tol=0.1)
