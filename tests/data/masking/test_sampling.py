import pytest
import torch

from data.masking.changing_units import Spans
from data.masking.sampling import first_columns, sampling_order
from data.masking.segmenters import Characters
from data.masking.strategies import STRATEGIES
from tests.data.masking.helpers import generator, units_of, within_four_standard_errors


def order_of(segmenter, offsets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    units, weights = segmenter(offsets, generator(), 0.0)
    return sampling_order(units, weights, torch.rand(offsets.shape, generator=generator(1)))


def test_the_first_column_of_a_unit():
    units = torch.tensor([[4, 4, 7, 8, 8, 8], [1, 2, 2, 2, 3, 3]])
    assert first_columns(units).tolist() == [[0, 0, 2, 3, 3, 3], [0, 1, 1, 1, 4, 4]]


def test_a_unit_may_continue_from_the_end_of_the_window_at_its_beginning():
    units = torch.tensor([[1, 2, 2, 2, 1, 1], [5, 5, 5, 5, 5, 5]])
    assert first_columns(units).tolist() == [[4, 1, 1, 1, 4, 4], [0, 0, 0, 0, 0, 0]]


def test_units_are_taken_whole_and_the_last_one_in_a_stretch():
    segmenter = units_of((3, 1.0), (4, 1.0), (2, 1.0), (5, 1.0))
    order, _ = order_of(segmenter, torch.arange(14).expand(500, 14))
    for row in order[:, :8]:  # a budget of 8 characters
        taken = segmenter.unit_of[row].tolist()
        *whole, last = dict.fromkeys(taken)
        for unit in whole:
            assert taken.count(unit) == int((segmenter.unit_of == unit).sum())
        first, length = int((segmenter.unit_of == last).nonzero()[0]), int((segmenter.unit_of == last).sum())
        ranks = row[-taken.count(last) :] - first
        assert ((ranks.diff() - 1) % length == 0).all()  # one after the other, in a circle


def test_each_character_of_the_last_unit_is_equally_likely():
    order, _ = order_of(units_of((5, 1.0)), torch.arange(5).expand(20_000, 5))
    for count in torch.bincount(order[:, :2].flatten()).tolist():
        assert within_four_standard_errors(count, 20_000, 2 / 5)


def test_the_first_unit_is_drawn_in_proportion_to_its_weight():
    """Chi-squared over 40,000 draws with 3 degrees of freedom exceeds 16.3 with probability 0.001."""
    weights = [1.0, 2.0, 4.0, 0.5]
    segmenter = units_of((3, weights[0]), (1, weights[1]), (6, weights[2]), (2, weights[3]))
    order, _ = order_of(segmenter, torch.arange(12).expand(40_000, 12))
    observed = torch.bincount(segmenter.unit_of[order[:, 0]].long(), minlength=4).double()
    expected = torch.tensor(weights).double() / sum(weights) * 40_000
    assert ((observed - expected) ** 2 / expected).sum() < 16.3


@pytest.mark.parametrize("weight", [0.0, -0.0, -1.0, float("nan")])
def test_a_unit_without_a_positive_weight_is_never_taken(weight):
    order, times = order_of(units_of((4, weight), (4, 1.0)), torch.arange(8).expand(100, 8))
    assert (order[:, :4] >= 4).all()
    assert times[:, :4].isfinite().all()
    assert times[:, 4:].isinf().all()


def test_characters_that_are_not_eligible_come_last():
    offsets = torch.arange(8).expand(200, 8)
    eligible = torch.tensor([True, False, True, True, False, True, True, False]).expand(200, 8)
    units, weights = units_of((4, 1.0), (4, 1.0))(offsets, generator(), 0.0)
    order, times = sampling_order(units, weights, torch.rand(200, 8, generator=generator()), eligible)
    assert torch.equal(eligible.gather(1, order), times.isfinite())
    assert times[:, :5].isfinite().all()


@pytest.mark.parametrize("seq_len", [32, 64])
def test_spans_of_characters_hide_every_column_equally_often(seq_len):
    n_windows, n_masked = 20_000, round(0.15 * seq_len)
    order, _ = order_of(Spans(Characters()), torch.arange(seq_len).expand(n_windows, seq_len))
    for count in torch.bincount(order[:, :n_masked].flatten()).tolist():
        assert within_four_standard_errors(count, n_windows, n_masked / seq_len)


def test_spans_of_words_hide_the_ends_of_a_window_little_more_often(sentences):
    starts = torch.randint(len(sentences) - 32, (20_000, 1), generator=generator())
    order, _ = order_of(STRATEGIES["span"](sentences), starts + torch.arange(32))
    shares = torch.bincount(order[:, :5].flatten()) / (20_000 * 5 / 32)
    assert shares.max() < 1.25
    assert shares.min() > 0.85
