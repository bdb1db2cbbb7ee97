import math
from itertools import pairwise

import pytest
import torch

from tests.data.masking.helpers import chi_square, generator
from tests.writing.conftest import Joint, generators
from trained.template import read_template
from writing.sampler import BLIND, BY_PROBABILITY, ORDERS, Sampler, draw

LARGEST = 1 - 2**-53  # the largest random number
NEVER = -torch.inf


def doubles(*values):
    return torch.tensor(values, dtype=torch.float64)


def written(trained, template, steps, **settings):
    """The texts after each step, from one text."""
    vocabulary = trained.vocabulary
    sampler = Sampler(
        trained.model, vocabulary.mask_token, vocabulary.n_ordinary, **settings
    )
    ids = read_template(template, trained.vocabulary).ids[None]
    return [ids, *sampler.write_in_pieces(ids, steps, generators(1), trained.longest)]


def blanks_in(trained, ids):
    return ids == trained.vocabulary.mask_token


def chi_square_of_texts(joint, steps, expected, **settings):
    """Of texts of three tokens of three, against the expected share of each, `[3, 3, 3]`."""
    n = 3_000
    sampler = Sampler(joint, 3, 3, **settings)
    blanks = torch.full((n, 3), 3)
    *_, texts = sampler.write(blanks, steps, generators(n))

    counts = torch.bincount(texts @ torch.tensor([9, 3, 1]), minlength=27)
    return chi_square(counts, expected.flatten())


@pytest.mark.parametrize("order", ORDERS)
def test_one_token_per_step_gives_the_exact_distribution(joint, order):
    """In every order, as the chain rule says."""
    assert chi_square_of_texts(joint, 3, joint.table, order=order) < 4


def test_all_tokens_in_one_step_are_independent(joint):
    shares = [joint.table.sum(axes) for axes in ((1, 2), (0, 2), (0, 1))]
    product = torch.einsum("a,b,c->abc", *shares)

    assert chi_square_of_texts(joint, 1, product) < 4

    with pytest.raises(AssertionError, match="impossible"):
        chi_square_of_texts(joint, 1, joint.table)


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_draws_follow_the_probabilities(temperature):
    log_probs = doubles(0.0, -1.0, -3.0, -7.0, -9.0, NEVER)
    uniform = torch.rand(1_000_000, generator=generator(), dtype=torch.float64)
    normalized = log_probs.log_softmax(0).expand(len(uniform), -1)
    tokens = draw(normalized, uniform, temperature)

    expected = (log_probs / temperature).softmax(0)

    assert chi_square(torch.bincount(tokens, minlength=6), expected) < 4


@pytest.mark.parametrize(
    ("log_prob", "temperature", "expected"),
    [
        # in float32, no random number is between 1 - 6e-8 and 1
        (-34.0, 1.0, [1, 1, 2]),
        (-3.0, 0.0, [1, 1, 1]),
        (-3.0, 1e-320, [1, 1, 1]),
        (-3.0, 1e-3, [1, 1, 1]),
        (-3.0, 1e300, [1, 2, 2]),
    ],
)
def test_improbable_tokens_can_be_drawn_and_impossible_ones_cannot(
    log_prob, temperature, expected
):
    """At extreme temperatures, too."""
    log_probs = doubles(NEVER, -0.1, log_prob, NEVER).log_softmax(0)
    tokens = draw(log_probs.expand(3, -1), doubles(0.0, 1 - 1e-8, LARGEST), temperature)

    assert tokens.tolist() == expected


@pytest.mark.parametrize("remask", [0.0, 0.3])
@pytest.mark.parametrize("order", ORDERS)
def test_the_number_of_blanks_follows_the_schedule(writer, order, remask):
    template = "the cat" + "_" * 30 + " sat"
    texts = written(writer, template, 7, order=order, remask=remask)
    left = [int(blanks_in(writer, ids).sum()) for ids in texts]

    assert left == [round(30 * (1 - step / 7)) for step in range(8)]


@pytest.mark.parametrize("remask", [0.0, 0.5])
@pytest.mark.parametrize(
    "template",
    ["the c_t" + "_" * 40 + "mat.\n", "_", "_" * 64, "the cat", "_he cat sa_"],
)
def test_only_blanks_are_written_and_none_is_left(writer, template, remask):
    fixed = read_template(template, writer.vocabulary).ids[None]
    blanks = blanks_in(writer, fixed)

    for ids in written(writer, template, 9, remask=remask):
        is_ordinary = ids < writer.vocabulary.n_ordinary
        assert torch.equal(ids[~blanks], fixed[~blanks])
        assert (is_ordinary | blanks_in(writer, ids)).all()

    assert is_ordinary.all()


@pytest.mark.parametrize("remask", [0.0, 0.3])
def test_a_written_token_changes_only_if_it_is_masked_again(writer, remask):
    n_changes = 0
    for before, after in pairwise(written(writer, "_" * 40, 20, remask=remask)):
        was_written = ~blanks_in(writer, before)
        n_changes += int((was_written & (before != after)).sum())

    assert bool(n_changes) == bool(remask)


def test_left_to_right_writes_from_the_left_and_more_steps_than_blanks_are_one_per_blank(
    writer,
):
    for text, n_blanks in (("the c__ sat", 2), ("the cat", 0)):
        assert len(written(writer, text, 1_000)) == 1 + n_blanks

    for ids in written(writer, "_" * 20, 8, order="left-to-right"):
        is_blank = blanks_in(writer, ids[0]).tolist()
        assert is_blank == sorted(is_blank)


@pytest.mark.parametrize("order", BY_PROBABILITY)
def test_equal_blanks_are_chosen_at_random(order):
    """And not side by side: characters that are written at once do not see each other."""
    same = Joint(torch.full((2,) * 8, 2.0**-8, dtype=torch.float64))
    sampler = Sampler(same, 2, 2, order)
    blanks = torch.full((400, 8), 2)
    first = next(sampler.write(blanks, 4, generators(400)))

    counts = (first != 2).sum(0)

    assert counts.sum() == 2 * 400
    assert chi_square(counts, torch.full((8,), 1 / 8)) < 4


@pytest.mark.parametrize("order", ORDERS)
def test_a_text_does_not_depend_on_the_others(joint, order):
    """Whose numbers of blanks may differ."""
    sampler = Sampler(joint, 3, 3, order, remask=0.2)
    blanks = torch.full((5, 3), 3)
    *_, together = sampler.write(blanks, 2, generators(5))

    for text, own in zip(together, generators(5), strict=True):
        *_, alone = sampler.write(blanks[:1], 2, [own])
        assert torch.equal(alone[0], text)

    ids = torch.tensor([[3, 3, 3], [0, 3, 1], [0, 1, 2]])
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


PROBABILITIES = doubles(
    [0.50, 0.50, 0.00, 0.00],  # the lowest entropy, no margin
    [0.55, 0.15, 0.15, 0.15],  # the largest margin
    [0.60, 0.38, 0.01, 0.01],  # the largest probability
)


@pytest.mark.parametrize(
    ("order", "first", "score", "score_of_one_token"),
    [
        ("confidence", 2, 0.60, 1),
        ("entropy", 0, -math.log(2), 0),
        ("margin", 1, 0.40, 1),
    ],
)
def test_each_order_prefers_another_blank(order, first, score, score_of_one_token):
    scores = BY_PROBABILITY[order](PROBABILITIES)
    assert scores.argmax() == first
    assert scores[first].item() == pytest.approx(score)
    assert BY_PROBABILITY[order](torch.ones(2, 1)).tolist() == [score_of_one_token] * 2


def test_blind_orders_do_not_look():
    uniform = torch.tensor([[0.3, 0.9, 0.1]])
    assert BLIND["random"](uniform).equal(uniform)
    assert BLIND["left-to-right"](uniform).argsort(descending=True).tolist() == [
        [0, 1, 2]
    ]
