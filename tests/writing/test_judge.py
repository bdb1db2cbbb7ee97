from itertools import pairwise, product

import pytest
import torch

from data.play.automaton import Automaton
from data.vocabulary import Vocabulary
from tests.writing.conftest import generators
from writing.judge import Judge, cut, ratio
from writing.sampler import ORDERS, Sampler

# "abc", "abd" or "ae", then again; so "ac" and "ca e" are impossible.
WORDS = Automaton(
    "abcdeb", ({1: 0.5, 5: 0.2, 4: 0.3}, {2: 1.0}, {0: 1.0}, {0: 1.0}, {0: 1.0}, {3: 1.0})
)
LENGTH = 12


VOCABULARY = Vocabulary("abcdex")


@pytest.fixture(scope="module")
def judge():
    return Judge(WORDS, VOCABULARY, LENGTH)


def fewest_cuts(floor, ids):
    """Of all ways to cut a text into parts that the automaton can write."""
    n = len(ids)
    for n_cuts in range(n):
        for where in product((False, True), repeat=n - 1):
            if sum(where) == n_cuts:
                ends = [0, *(i for i, here in enumerate(where, 1) if here), n]
                if all(floor.log_probability(ids[None, a:b]).isfinite() for a, b in pairwise(ends)):
                    return n_cuts
    raise AssertionError("each character alone is possible")


def test_cuts_are_the_fewest(judge):
    floor = judge.posterior.floor
    texts = torch.randint(5, (20, 7), generator=torch.Generator().manual_seed(0))
    _, is_cut = cut(floor, texts)
    assert is_cut.sum(1).tolist() == [fewest_cuts(floor, ids) for ids in texts]
    assert is_cut.any()


def test_before_the_first_cut_the_losses_are_those_of_the_text(judge):
    floor = judge.posterior.floor
    texts = torch.cat([torch.randint(5, (20, 9)), floor_ids(judge, WORDS.write(90, 3)).view(10, 9)])
    losses, is_cut = cut(floor, texts)
    for end in range(1, 10):
        log_probs = floor.log_probability(texts[:, :end])
        is_possible = ~is_cut[:, :end].any(1)
        assert torch.equal(log_probs.isfinite(), is_possible)
        expected = -losses[is_possible, :end].sum(1)
        assert torch.allclose(log_probs[is_possible], expected, rtol=0, atol=1e-12)


def floor_ids(judge, text):
    return judge.posterior.to_floor(VOCABULARY.encode(text))


def test_a_cut_begins_a_new_text(judge):
    """Also after a character that the automaton does not have."""
    floor = judge.posterior.floor
    losses, is_cut = cut(floor, floor_ids(judge, "abcacxbda")[None])
    assert is_cut[0].int().tolist() == [0, 0, 0, 0, 1, 1, 0, 0, 0]
    for begin, end in ((0, 4), (4, 5), (6, 9)):
        alone = cut(floor, floor_ids(judge, "abcacxbda"[begin:end])[None])[0]
        assert torch.allclose(losses[0, begin:end], alone[0], rtol=0, atol=1e-12)
    assert losses[0].isinf().nonzero().flatten().tolist() == [5]


def test_the_automatons_own_texts_have_its_entropy_rate(judge):
    own = VOCABULARY.encode(WORDS.write(3_000 * LENGTH, 9)).view(3_000, LENGTH)
    found = judge.measures(own)
    assert found["impossible"] == found["cuts"] == 0
    assert abs(found["nats"] - judge.entropy_rate) < min(0.02, 4 * found["nats_stderr"])


def test_impossible_texts_still_have_measures(judge):
    texts = VOCABULARY.encode("cccccccccccc" + "abcabcabcabc" + "xxxxxxxxxxxx").view(3, LENGTH)
    found = judge.measures(texts)
    assert found["impossible"] == pytest.approx(2 / 3)
    assert found["cuts"] == pytest.approx(1_000 * (11 + 0 + 12) / (3 * LENGTH))
    nothing = judge.measures(texts[2:])
    assert nothing["nats"] != nothing["nats"]  # nan


def test_each_piece_counts_as_a_text(judge):
    """The losses of one are compared with those at the same distance from the beginning of the
    grammar's own texts."""
    pieces = ["abcabd", "c", "cabda"]
    texts = [VOCABULARY.encode(piece)[None] for piece in pieces]
    found = judge.measures(torch.cat(texts, 1))
    losses = [cut(judge.posterior.floor, judge.posterior.to_floor(ids))[0][0] for ids in texts]
    excess = sum((own - judge.own_losses[: len(own)]).sum() for own in losses)
    assert found["cuts"] == pytest.approx(1_000 * 2 / LENGTH)
    assert found["nats"] == pytest.approx(judge.entropy_rate + excess.item() / LENGTH)


@pytest.mark.parametrize("order", ORDERS)
def test_the_ideal_sampler_errs_only_if_it_writes_several_characters_at_once(judge, order):
    sampler = Sampler(judge.posterior, 7, 6, order)
    for steps, possible in ((3, (0.3, 1)), (LENGTH, (0, 0))):
        *_, texts = sampler.write(torch.full((64, LENGTH), 7), steps, generators(64))
        assert possible[0] <= judge.measures(texts)["impossible"] <= possible[1]


def test_ratios_weigh_texts_by_their_counts():
    mean, stderr = ratio(torch.tensor([1.0, 9.0]), torch.tensor([1.0, 3.0]))
    assert mean == 2.5
    assert stderr == pytest.approx((2 * (1.5**2 + 1.5**2)) ** 0.5 / 4)
    assert ratio(torch.tensor([3.0]), torch.tensor([2.0]))[0] == 1.5
