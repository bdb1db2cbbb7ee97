import pytest
import torch

from data.vocabulary import Vocabulary
from tests.data.masking.helpers import generator
from tests.data.play.test_floor import random_automaton
from tests.writing.conftest import flattened
from writing.consistency import ORDERS, hidden_spans, joint_consistency
from writing.truth import TruePosterior

AUTOMATON = random_automaton(5, n_states=6)
VOCABULARY = Vocabulary("abc")
TRUTH = TruePosterior(AUTOMATON, VOCABULARY)


def spans(n, background):
    windows = VOCABULARY.encode(AUTOMATON.write(40 * 12, seed=0)).view(40, 12)
    draws = generator(n)
    mask_token = VOCABULARY.mask_token
    return hidden_spans(
        TRUTH, windows, mask_token, n=n, background=background, generator=draws
    )


def measured(model, n, background):
    """The measures of a model, and the nats of all that should be 0."""
    measures = joint_consistency(model, spans(n, background), VOCABULARY, generator())
    rows = [*measures["kl"].values(), *measures["disagreement"].values()]
    return measures, [row["nats"] for row in rows]


@pytest.mark.parametrize("background", [0.0, 0.8])
@pytest.mark.parametrize("n", [1, 2, 6])
def test_the_exact_posterior_is_consistent(n, background):
    measures, nats = measured(TRUTH, n, background)
    assert list(measures["kl"]) == list(ORDERS)
    assert nats == pytest.approx([0] * 5, abs=1e-9)
    assert measures["exact"]["nats"] > 0


def test_other_conditionals_disagree():
    flat = flattened(TRUTH, 0.3)
    measures, nats = measured(flat, 6, 0.5)

    for row in measures["kl"].values():
        assert row["nats"] > 2 * row["stderr"] > 0

    assert len({round(number, 9) for number in nats}) == 5

    _, nats = measured(flat, 1, 0.5)

    assert nats[-2:] == [0, 0]  # a single character has one order


def test_spans_are_hidden_and_so_is_a_share_of_the_background():
    hidden = spans(2, 0.5)
    columns = hidden.orders["left to right"]

    assert (columns[:, 1] == columns[:, 0] + 1).all()

    visible = hidden.inputs != VOCABULARY.mask_token

    assert not visible.gather(1, columns).any()
    assert torch.equal(hidden.inputs[visible], hidden.windows[visible])
    assert visible.double().mean().item() == pytest.approx(0.5 * 10 / 12, abs=0.1)
