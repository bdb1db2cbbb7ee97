import math
from itertools import pairwise

import pytest
import torch

from tests.data.masking.helpers import chi_square
from tests.writing.conftest import Joint, generators
from trained.fill import encode
from writing.sampler import BLIND, BY_PROBABILITY, ORDERS, Sampler, draw

LARGEST = 1 - 2**-53  # the largest random number


def written(trained, template, steps, seed=0, **settings):
    """The texts after each step, from one text."""
    sampler = Sampler(
        trained.model, trained.vocabulary.mask_token, trained.vocabulary.n_ordinary, **settings
    )
    ids = encode(template, trained)[None]
    return [ids, *sampler.write_in_pieces(ids, steps, generators(1, seed), trained.longest)]


def counts_of(texts):
    """How often each text of three tokens of three comes, `[27]`."""
    return torch.bincount(texts @ torch.tensor([9, 3, 1]), minlength=27)


@pytest.mark.parametrize("order", ORDERS)
def test_one_token_per_step_gives_the_exact_distribution(joint, order):
    """In every order, as the chain rule says."""
    n = 3_000
    *_, texts = Sampler(joint, 3, 3, order).write(torch.full((n, 3), 3), 3, generators(n))
    assert chi_square(counts_of(texts), joint.table.flatten()) < 4


def test_all_tokens_in_one_step_are_independent(joint):
    n = 3_000
    (texts,) = Sampler(joint, 3, 3).write(torch.full((n, 3), 3), 1, generators(n))
    shares = [joint.table.sum(axes) for axes in ((1, 2), (0, 2), (0, 1))]
    product = torch.einsum("a,b,c->abc", *shares).flatten()
    assert chi_square(counts_of(texts), product) < 4
    with pytest.raises(AssertionError, match="impossible"):
        chi_square(counts_of(texts), joint.table.flatten())


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_draws_follow_the_probabilities(temperature):
    log_probs = torch.tensor(
        [0.0, -1.0, -3.0, -7.0, -9.0, -torch.inf], dtype=torch.float64
    ).log_softmax(0)
    n = 1_000_000
    uniform = torch.rand(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    tokens = draw(log_probs.expand(n, -1), uniform, temperature)
    expected = (log_probs / temperature).softmax(0)
    assert chi_square(torch.bincount(tokens, minlength=6), expected) < 4


def test_improbable_tokens_can_be_drawn_and_impossible_ones_cannot():
    """In float32, no random number is between 1 - 6e-8 and 1."""
    log_probs = torch.tensor(
        [[-torch.inf, 0.0, -34.0, -torch.inf]], dtype=torch.float64
    ).log_softmax(-1)
    for uniform, token in ((0.0, 1), (1 - 1e-8, 1), (LARGEST, 2)):
        assert draw(log_probs, torch.tensor([uniform], dtype=torch.float64), 1.0).item() == token


@pytest.mark.parametrize(
    ("temperature", "possible"), [(0.0, {1}), (1e-320, {1}), (1e-3, {1}), (1e300, {1, 2})]
)
def test_extreme_temperatures_draw_possible_tokens(temperature, possible):
    log_probs = torch.tensor([[-torch.inf, -0.1, -3.0, -torch.inf]], dtype=torch.float64).expand(
        3, -1
    )
    uniform = torch.tensor([0.0, 0.5, LARGEST], dtype=torch.float64)
    assert set(draw(log_probs, uniform, temperature).tolist()) == possible


@pytest.mark.parametrize("remask", [0.0, 0.3])
@pytest.mark.parametrize("order", ORDERS)
def test_the_number_of_blanks_follows_the_schedule(writer, order, remask):
    texts = written(writer, "the cat" + "_" * 30 + " sat", 7, order=order, remask=remask)
    left = [int((ids == writer.vocabulary.mask_token).sum()) for ids in texts]
    assert left == [round(30 * (1 - step / 7)) for step in range(8)]


@pytest.mark.parametrize("remask", [0.0, 0.5])
@pytest.mark.parametrize(
    "template", ["the c_t" + "_" * 40 + "mat.\n", "_", "_" * 64, "the cat", "_he cat sa_"]
)
def test_only_blanks_are_written_and_none_is_left(writer, template, remask):
    fixed = encode(template, writer)[None]
    blanks = fixed == writer.vocabulary.mask_token
    for ids in written(writer, template, 9, remask=remask):
        assert torch.equal(ids[~blanks], fixed[~blanks])
        assert ((ids < writer.vocabulary.n_ordinary) | (ids == writer.vocabulary.mask_token)).all()
    assert (ids < writer.vocabulary.n_ordinary).all()


def test_a_written_token_changes_only_if_it_is_masked_again(writer):
    def changes(remask):
        texts = written(writer, "_" * 40, 20, remask=remask)
        mask_token = writer.vocabulary.mask_token
        return sum(int(((a != b) & (a != mask_token)).sum()) for a, b in pairwise(texts))

    assert changes(0.0) == 0
    assert changes(0.3) > 0


def test_left_to_right_writes_from_the_left_and_more_steps_than_blanks_are_one_per_blank(writer):
    assert [len(written(writer, text, 1_000)) for text in ("the c__ sat", "the cat")] == [1 + 2, 1]
    for ids in written(writer, "_" * 20, 8, order="left-to-right"):
        is_blank = (ids[0] == writer.vocabulary.mask_token).tolist()
        assert is_blank == sorted(is_blank)


@pytest.mark.parametrize("order", ["confidence", "entropy", "margin"])
def test_equal_blanks_are_chosen_at_random(order):
    """And not side by side: characters that are written at once do not see each other."""
    same = Joint(torch.full((2,) * 8, 2.0**-8, dtype=torch.float64))
    texts = next(Sampler(same, 2, 2, order).write(torch.full((400, 8), 2), 4, generators(400)))
    written = (texts != 2).sum(0)
    assert written.sum() == 2 * 400
    assert chi_square(written, torch.full((8,), 1 / 8)) < 4


def test_a_text_does_not_depend_on_the_others(joint):
    """Whose numbers of blanks may differ."""
    blanks = torch.full((5, 3), 3)
    ids = torch.tensor([[3, 3, 3], [0, 3, 1], [0, 1, 2]])
    for order in ORDERS:
        sampler = Sampler(joint, 3, 3, order, remask=0.2)
        *_, together = sampler.write(blanks, 2, generators(5))
        for i, generator in enumerate(generators(5)):
            *_, alone = sampler.write(blanks[:1], 2, [generator])
            assert torch.equal(alone[0], together[i])
        *_, texts = sampler.write(ids, 3, generators(3))
        assert (texts < 3).all()
        assert torch.equal(texts[ids < 3], ids[ids < 3])


@pytest.mark.parametrize("steps", [1, 10, 1_000])
def test_long_texts_are_written_in_pieces(writer, steps):
    start, *texts = written(writer, "the cat" + "_" * 193, steps)
    assert len(texts) == max(6, min(steps, 193))  # six pieces
    assert texts[-1].shape == (1, 200)
    assert (texts[-1] < writer.vocabulary.n_ordinary).all()
    assert torch.equal(texts[-1][0, :7], start[0, :7])


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
