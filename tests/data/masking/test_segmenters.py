import pytest
import torch

from data.masking.sampling import sampling_order
from data.masking.segmenters import Characters
from data.masking.strategies import STRATEGIES
from data.masking.units import Mixture, Spans
from tests.data.masking.helpers import (
    chi_square,
    generator,
    units_of,
    within_four_standard_errors,
)


def test_span_lengths_follow_the_renormalized_geometric_distribution():
    lengths = Spans(Characters()).lengths((400_000,), generator())
    chances = 0.2 * 0.8 ** torch.arange(10, dtype=torch.float64)
    chances /= chances.sum()

    assert chi_square(torch.bincount(lengths, minlength=11)[1:], chances) < 4
    assert (torch.arange(1, 11) * chances).sum() == pytest.approx(3.80, abs=0.005)
    assert lengths.double().mean() == pytest.approx(3.80, abs=0.02)


def test_spans_are_runs_of_whole_base_units():
    words = units_of(*[(n, 1.0) for n in (3, 5, 2, 7, 1, 4) * 10])
    offsets = torch.arange(len(words.unit_of)).expand(50, -1)
    spans, _ = Spans(words)(offsets, generator(), 0.0)

    span_ends = spans[:, 1:] != spans[:, :-1]
    is_inside_a_word = words.unit_of[1:] == words.unit_of[:-1]

    assert not (span_ends & is_inside_a_word).any()

    runs = [torch.unique_consecutive(row, return_counts=True) for row in spans]
    for numbers, _ in runs:
        # at most the first number occurs again, at the end
        assert numbers[1:].unique().numel() == len(numbers) - 1

    assert max(lengths.max() for _, lengths in runs) > 7  # spans of several words


def test_spans_begin_equally_often_everywhere():
    offsets = torch.arange(64).expand(20_000, 64)
    spans, _ = Spans(Characters())(offsets, generator(), 0.0)
    is_begin = spans != spans.roll(1, dims=1)
    begins = is_begin.double().mean(0)

    # One span per window is cut short by the one that it meets, so spans begin a little more often
    # than 1 / 3.797.
    assert begins.mean() == pytest.approx(1 / 3.797 + 0.5 / 64, rel=0.02)
    assert (begins / begins.mean() - 1).abs().max() < 0.05


def test_adaptive_units_move_weight_to_what_is_hard():
    text = "easy hard " * 50
    segmenter = STRATEGIES["adaptive"](text)
    offsets = torch.arange(len(text))
    losses = torch.where(offsets % 10 >= 5, 3.0, 0.1)  # the second word of each pair
    for _ in range(100):
        segmenter.observe(offsets, losses)

    _, weights = segmenter(offsets[None], generator(), 0.0)

    assert weights[0, text.index("hard")] > 2.5
    assert weights[0, text.index("easy")] < 0.2

    again = STRATEGIES["adaptive"](text)
    again.load_state_dict(segmenter.state_dict())

    assert torch.equal(again.means, segmenter.means)


def test_adaptive_units_do_not_change_types_that_were_not_seen():
    """And units without any loss are still drawn."""
    segmenter = STRATEGIES["adaptive"]("one two " * 10)
    segmenter.observe(torch.arange(3), torch.full((3,), 9.0))
    _, weights = segmenter(torch.arange(80)[None], generator(), 0.0)

    assert weights[0, 0] == pytest.approx(1 + 0.05 * 8)
    assert weights[0, 4] == 1.0

    for _ in range(3_000):
        segmenter.observe(torch.arange(3), torch.zeros(3))

    _, weights = segmenter(torch.arange(80)[None], generator(), 0.0)

    assert (weights > 0).all()


def test_a_mixture_keeps_its_shares_and_changes_them_with_the_progress():
    whole_word = STRATEGIES["whole_word"]("word " * 40)
    parts = {"random": Characters(), "whole_word": whole_word}
    first_half = {"random": 3.0, "whole_word": 1.0}
    rows = [(0.5, first_half), (1.0, {"whole_word": 1.0})]
    segmenter = Mixture(parts, rows)

    offsets = torch.arange(200).expand(8_000, 200)
    units, _ = segmenter(offsets, generator(), 0.0)
    # whether the first two characters of a word are apart
    n_apart = int((units[:, 0] != units[:, 1]).sum())

    assert within_four_standard_errors(n_apart, 8_000, 0.75)

    units, _ = segmenter(offsets[:100], generator(), 0.5)
    assert (units[:, 0] == units[:, 1]).all()


def order_of(segmenter, offsets):
    units, weights = segmenter(offsets, generator(), 0.0)
    draws = torch.rand(offsets.shape, generator=generator(1))
    return sampling_order(units, weights, draws)


def test_units_are_taken_whole_and_the_last_one_in_a_stretch():
    segmenter = units_of((3, 1.0), (4, 1.0), (2, 1.0), (5, 1.0))
    lengths = [3, 4, 2, 5]
    order, _ = order_of(segmenter, torch.arange(14).expand(500, 14))

    for row in order[:, :8]:  # a budget of 8 characters
        taken = segmenter.unit_of[row].tolist()
        *whole, last = dict.fromkeys(taken)

        for unit in whole:
            assert taken.count(unit) == lengths[unit]

        stretch = row[-taken.count(last) :]
        steps = stretch.diff() % lengths[last]

        assert (steps == 1).all()  # one after the other, in a circle


def test_the_first_unit_is_drawn_in_proportion_to_its_weight():
    segmenter = units_of((3, 1.0), (1, 2.0), (6, 4.0), (2, 0.5))
    order, _ = order_of(segmenter, torch.arange(12).expand(40_000, 12))
    drawn = torch.bincount(segmenter.unit_of[order[:, 0]].long(), minlength=4)

    assert chi_square(drawn, torch.tensor([1.0, 2.0, 4.0, 0.5]) / 7.5) < 4


@pytest.mark.parametrize("weight", [0.0, -0.0, -1.0, float("nan")])
def test_a_unit_without_a_positive_weight_is_never_taken(weight):
    segmenter = units_of((4, weight), (4, 1.0))
    order, times = order_of(segmenter, torch.arange(8).expand(100, 8))

    assert (order[:, :4] >= 4).all()
    assert times[:, :4].isfinite().all()
    assert times[:, 4:].isinf().all()


@pytest.mark.parametrize(
    ("segmenter", "seq_len", "n_masked"),
    [
        (Spans(Characters()), 32, 5),
        (Spans(Characters()), 64, 10),
        (units_of((5, 1.0)), 5, 2),
    ],
    ids=["spans in 32", "spans in 64", "one unit"],
)
def test_spans_of_characters_hide_every_column_equally_often(
    segmenter, seq_len, n_masked
):
    """And so does a unit that is longer than the budget."""
    order, _ = order_of(segmenter, torch.arange(seq_len).expand(20_000, seq_len))
    n_hidden = torch.bincount(order[:, :n_masked].flatten())

    for count in n_hidden.tolist():
        assert within_four_standard_errors(count, 20_000, n_masked / seq_len)


def test_spans_of_words_hide_the_ends_of_a_window_little_more_often(sentences):
    starts = torch.randint(len(sentences) - 32, (20_000, 1), generator=generator())
    offsets = starts + torch.arange(32)
    order, _ = order_of(STRATEGIES["span"](sentences), offsets)

    n_hidden = torch.bincount(order[:, :5].flatten())
    shares = n_hidden / (20_000 * 5 / 32)

    assert shares.max() < 1.25
    assert shares.min() > 0.85
