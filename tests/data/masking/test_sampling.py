import pytest
import torch

from data.masking.sampling import first_columns, sampling_order
from data.masking.segmenters import Characters
from data.masking.strategies import STRATEGIES
from data.masking.units import Spans
from tests.data.masking.helpers import chi_square, generator, units_of, within_four_standard_errors


def order_of(segmenter, offsets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    units, weights = segmenter(offsets, generator(), 0.0)
    return sampling_order(units, weights, torch.rand(offsets.shape, generator=generator(1)))


def test_the_first_column_of_a_unit():
    """A unit may continue from the end of the window at its beginning."""
    units = torch.tensor([[4, 4, 7, 8, 8, 8], [1, 2, 2, 2, 3, 3], [1, 2, 2, 2, 1, 1], [5, 5, 5, 5, 5, 5]])
    columns = [[0, 0, 2, 3, 3, 3], [0, 1, 1, 1, 4, 4], [4, 1, 1, 1, 4, 4], [0, 0, 0, 0, 0, 0]]
    assert first_columns(units).tolist() == columns


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


def test_the_first_unit_is_drawn_in_proportion_to_its_weight():
    segmenter = units_of((3, 1.0), (1, 2.0), (6, 4.0), (2, 0.5))
    order, _ = order_of(segmenter, torch.arange(12).expand(40_000, 12))
    drawn = torch.bincount(segmenter.unit_of[order[:, 0]].long(), minlength=4)
    assert chi_square(drawn, torch.tensor([1.0, 2.0, 4.0, 0.5]) / 7.5) < 4


@pytest.mark.parametrize("weight", [0.0, -0.0, -1.0, float("nan")])
def test_a_unit_without_a_positive_weight_is_never_taken(weight):
    order, times = order_of(units_of((4, weight), (4, 1.0)), torch.arange(8).expand(100, 8))
    assert (order[:, :4] >= 4).all()
    assert times[:, :4].isfinite().all()
    assert times[:, 4:].isinf().all()


@pytest.mark.parametrize(
    ("segmenter", "seq_len", "n_masked"),
    [(Spans(Characters()), 32, 5), (Spans(Characters()), 64, 10), (units_of((5, 1.0)), 5, 2)],
    ids=["spans in 32", "spans in 64", "one unit"],
)
def test_spans_of_characters_hide_every_column_equally_often(segmenter, seq_len, n_masked):
    """And so does a unit that is longer than the budget."""
    order, _ = order_of(segmenter, torch.arange(seq_len).expand(20_000, seq_len))
    for count in torch.bincount(order[:, :n_masked].flatten()).tolist():
        assert within_four_standard_errors(count, 20_000, n_masked / seq_len)


def test_spans_of_words_hide_the_ends_of_a_window_little_more_often(sentences):
    starts = torch.randint(len(sentences) - 32, (20_000, 1), generator=generator())
    order, _ = order_of(STRATEGIES["span"](sentences), starts + torch.arange(32))
    shares = torch.bincount(order[:, :5].flatten()) / (20_000 * 5 / 32)
    assert shares.max() < 1.25
    assert shares.min() > 0.85
