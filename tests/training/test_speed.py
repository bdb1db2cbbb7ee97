"""The speed of a run in its rows."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from distributed.exchange_time import covered
from training.callbacks.speed import operations_per_char, peak, seconds_per_call

CPU = torch.device("cpu")


class Reader(nn.Module):
    """Attention between all positions, then a matrix at those that are asked for."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(9, 32)
        self.matrix = nn.Linear(32, 16, bias=False)

    def forward(self, inputs, positions):
        x = self.embedding(inputs).unflatten(2, (4, 8)).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(x, x, x).transpose(1, 2).flatten(2)
        return self.matrix(mixed.flatten(0, 1)[positions])


def test_the_operations_of_products_and_of_attention_are_counted():
    """Per position: 2 per weight, and 2 * seq_len * d_model for scores and for mixing; twice that
    going backward."""
    expected = 3 * (2 * 32 * 16 * 5 / 20 + 4 * 20 * 32)
    assert operations_per_char(Reader(), seq_len=20, n_masked=5, device=CPU) == expected


def test_the_peak_is_the_rate_of_the_largest_matrix():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(512, 512))
    matrix = torch.randn(512, 512)
    rate = 2 * 512**3 / seconds_per_call(lambda: matrix @ matrix, 20)

    # others may use the core
    assert peak(model, 512, CPU, torch.float32) > 0.2 * rate
    assert peak(nn.Embedding(3, 4), 512, CPU, torch.float32) == 0


def test_spans_that_overlap_count_once():
    assert covered([[0, 2], [5, 6], [1, 3], [5, 5.5]]) == pytest.approx(4)
    assert covered([]) == 0
