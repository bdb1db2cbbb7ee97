import math
from itertools import combinations, pairwise

import pytest
import torch

from data.play.automaton import Automaton
from data.vocabulary import Vocabulary
from tests.data.masking.helpers import generator
from tests.writing.conftest import generators
from writing.judge import Judge, cut, ratio
from writing.sampler import ORDERS, Sampler

# "abc", "abd" or "ae", then again; so "ac" and "ca e" are impossible.
WORDS = Automaton(
    "abcdeb",
    ({1: 0.5, 5: 0.2, 4: 0.3}, {2: 1.0}, {0: 1.0}, {0: 1.0}, {0: 1.0}, {3: 1.0}),
)
LENGTH = 12
VOCABULARY = Vocabulary("abcdex")
JUDGE = Judge(WORDS, VOCABULARY, LENGTH)
FLOOR = JUDGE.posterior.floor


def floor_ids(text):
    """The ids of a text in the automaton's own numbers, `[1, length]`."""
    return JUDGE.posterior.to_floor(VOCABULARY.encode(text))[None]


def is_possible(ids):
    return bool(FLOOR.log_probability(ids[None]).isfinite())


def fewest_cuts(ids):
    """Of all ways to cut a text into parts that the automaton can write."""
    n = len(ids)
    for n_cuts in range(n):
        for cuts in combinations(range(1, n), n_cuts):
            ends = pairwise([0, *cuts, n])
            if all(is_possible(ids[start:end]) for start, end in ends):
                return n_cuts

    raise AssertionError("each character alone is possible")


def test_cuts_are_the_fewest():
    texts = torch.randint(5, (20, 7), generator=generator())
    _, is_cut = cut(FLOOR, texts)

    assert is_cut.sum(1).tolist() == [fewest_cuts(ids) for ids in texts]
    assert is_cut.any()


def test_before_the_first_cut_the_losses_are_those_of_the_text():
    own = floor_ids(WORDS.write(90, 3)).view(10, 9)
    others = torch.randint(5, (20, 9), generator=generator())
    texts = torch.cat([others, own])
    losses, is_cut = cut(FLOOR, texts)

    for end in range(1, 10):
        log_probs = FLOOR.log_probability(texts[:, :end])
        is_whole = ~is_cut[:, :end].any(1)

        assert log_probs.isfinite().equal(is_whole)

        expected = -losses[is_whole, :end].sum(1)
        torch.testing.assert_close(log_probs[is_whole], expected, rtol=0, atol=1e-12)


def test_a_cut_begins_a_new_text():
    """Also after a character that the automaton does not have."""
    text = "abcacxbda"
    losses, is_cut = cut(FLOOR, floor_ids(text))

    assert is_cut[0].nonzero().flatten().tolist() == [4, 5]
    assert losses[0].isinf().nonzero().flatten().tolist() == [5]

    for begin, end in ((0, 4), (4, 5), (6, 9)):
        alone, _ = cut(FLOOR, floor_ids(text[begin:end]))
        torch.testing.assert_close(losses[:, begin:end], alone, rtol=0, atol=1e-12)


def test_the_automatons_own_texts_have_its_entropy_rate():
    own = VOCABULARY.encode(WORDS.write(3_000 * LENGTH, 9)).view(3_000, LENGTH)
    measures = JUDGE.measures(own)

    assert measures["impossible"] == measures["cuts"] == 0

    error = abs(measures["nats"] - JUDGE.entropy_rate)

    assert error < min(0.02, 4 * measures["nats_stderr"])


def test_impossible_texts_still_have_measures():
    ids = VOCABULARY.encode("cccccccccccc" + "abcabcabcabc" + "xxxxxxxxxxxx")
    texts = ids.view(3, LENGTH)
    measures = JUDGE.measures(texts)

    assert measures["impossible"] == pytest.approx(2 / 3)
    assert measures["cuts"] == pytest.approx(1_000 * (11 + 0 + 12) / (3 * LENGTH))
    assert math.isnan(JUDGE.measures(texts[2:])["nats"])


def test_each_piece_counts_as_a_text():
    """The losses of one are compared with those at the same distance from the beginning of the
    grammar's own texts."""
    excess = 0.0
    for piece in ("abcabd", "c", "cabda"):
        losses, _ = cut(FLOOR, floor_ids(piece))
        own_losses = JUDGE.own_losses[: len(piece)]
        excess += (losses[0] - own_losses).sum().item()

    measures = JUDGE.measures(VOCABULARY.encode("abcabdccabda")[None])

    assert measures["cuts"] == pytest.approx(1_000 * 2 / LENGTH)
    assert measures["nats"] == pytest.approx(JUDGE.entropy_rate + excess / LENGTH)


@pytest.mark.parametrize("order", ORDERS)
def test_the_ideal_sampler_errs_only_if_it_writes_several_characters_at_once(order):
    sampler = Sampler(JUDGE.posterior, 7, 6, order)
    blanks = torch.full((64, LENGTH), 7)

    *_, together = sampler.write(blanks, 3, generators(64))

    assert JUDGE.measures(together)["impossible"] >= 0.3

    *_, one_by_one = sampler.write(blanks, LENGTH, generators(64))
    assert JUDGE.measures(one_by_one)["impossible"] == 0


def test_ratios_weigh_texts_by_their_counts():
    mean, stderr = ratio(torch.tensor([1.0, 9.0]), torch.tensor([1.0, 3.0]))
    assert mean == 2.5
    assert stderr == pytest.approx((2 * (1.5**2 + 1.5**2)) ** 0.5 / 4)
    assert ratio(torch.tensor([3.0]), torch.tensor([2.0]))[0] == 1.5
