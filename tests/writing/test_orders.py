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


@pytest.mark.parametrize(
    ("order", "first", "score", "score_of_one_token"),
    [("confidence", 2, 0.60, 1), ("entropy", 0, -math.log(2), 0), ("margin", 1, 0.40, 1)],
)
def test_each_order_prefers_another_blank(order, first, score, score_of_one_token):
    scores = BY_PROBABILITY[order](PROBABILITIES)
    assert scores.argmax() == first
    assert scores[first].item() == pytest.approx(score)
    assert BY_PROBABILITY[order](torch.ones(2, 1)).tolist() == [score_of_one_token] * 2


def test_blind_orders_do_not_look():
    uniform = torch.tensor([[0.3, 0.9, 0.1]])
    assert BLIND["random"](uniform).tolist() == uniform.tolist()
    assert BLIND["left-to-right"](uniform).argsort(descending=True).tolist() == [[0, 1, 2]]
