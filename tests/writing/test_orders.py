import math

import pytest
import torch

from writing.orders import BLIND, BY_PROBABILITY

PROBABILITIES = torch.tensor(
    [
        [0.50, 0.50, 0.00, 0.00],  # the lowest entropy, no margin
        [0.55, 0.15, 0.15, 0.15],  # the largest margin
        [0.60, 0.38, 0.01, 0.01],  # the largest probability
    ],
    dtype=torch.float64,
)


@pytest.mark.parametrize(("order", "first"), [("confidence", 2), ("entropy", 0), ("margin", 1)])
def test_each_order_prefers_another_blank(order, first):
    assert BY_PROBABILITY[order](PROBABILITIES).argmax() == first


def test_scores_are_what_they_are_called():
    assert BY_PROBABILITY["entropy"](PROBABILITIES)[0].item() == pytest.approx(-math.log(2))
    assert BY_PROBABILITY["margin"](PROBABILITIES).tolist() == pytest.approx([0.0, 0.40, 0.22])


def test_a_vocabulary_may_have_one_token():
    assert [order(torch.ones(2, 1)).tolist() for order in BY_PROBABILITY.values()] == [[1, 1], [0, 0], [1, 1]]


def test_blind_orders_do_not_look():
    uniform = torch.tensor([[0.3, 0.9, 0.1]])
    assert BLIND["random"](uniform).tolist() == uniform.tolist()
    assert BLIND["left-to-right"](uniform).argsort(descending=True).tolist() == [[0, 1, 2]]
