import pytest
import torch
from torch.nn import functional as F

from model import ModernEncoder
from model.ngrams import NGRAMS, NgramEmbedding
from tests.data.masking.helpers import generator

N_TOKENS = 30
MASK = 29
INPUTS = torch.randint(N_TOKENS, (3, 9), generator=generator())


def embedding(**settings):
    """With rows that differ from each other, as if it had been trained."""
    defaults = {"n_tokens": N_TOKENS, "d_model": 4, "ngrams": NGRAMS, "n_rows": 1_000}
    module = NgramEmbedding(**defaults | settings)
    torch.nn.init.normal_(module.table.weight, generator=generator(1))
    return module


def row_number(module, tokens, position, i):
    """The hash of the i-th n-gram around a position, in plain integers; the symbol after the last
    token lies beyond the borders of the window."""
    number = module.summands[i].item()
    for offset in NGRAMS[i]:
        column = position + offset
        is_inside = 0 <= column < len(tokens)
        symbol = tokens[column] if is_inside else N_TOKENS
        number += symbol * module.factors[4 + offset, i].item()

    highest_bits = ((number + 2**63) % 2**64) >> 33
    return (highest_bits * module.table.num_embeddings) >> 31


@pytest.mark.parametrize(
    ("n_rows", "n_parts"), [(1, 1), (10, 1), (1_000, 1), (2**20, 1), (1_000, 2)]
)
def test_the_vectors_are_those_of_a_plain_loop(n_rows, n_parts):
    inputs = INPUTS.clone()
    inputs[0, 2:5] = MASK
    module = embedding(n_rows=n_rows, n_parts=n_parts)
    vectors = module(inputs)
    length = 4 // n_parts  # of a row

    for window, tokens in enumerate(inputs.tolist()):
        for position in range(len(tokens)):
            expected = torch.zeros(4)
            for i in range(len(NGRAMS)):
                row = row_number(module, tokens, position, i)
                first = i * n_parts // len(NGRAMS) * length
                expected[first : first + length] += module.table.weight[row]

            assert torch.allclose(vectors[window, position], expected, atol=1e-5)


@pytest.mark.parametrize("n_tokens", [30, 100_000])
def test_ngrams_are_spread_evenly_over_the_rows(n_tokens):
    tokens = torch.randint(n_tokens, (50, 64), generator=generator())
    rows = embedding(n_tokens=n_tokens).rows(tokens)
    counts = rows[:, 4:-4].flatten().bincount()

    assert len(counts) == 1_000
    assert counts.min() > 0
    assert counts.max() < 3 * counts.float().mean()


@pytest.mark.parametrize(("ngram", "column"), [((-2, -1), 2), ((1, 2), 0)])
def test_few_ngrams_share_a_row_if_there_are_many_rows(ngram, column):
    # every bigram, each in a window
    every_token = torch.arange(N_TOKENS)
    pairs = torch.cartesian_prod(every_token, every_token)
    windows = torch.cat([pairs, pairs[:, :1]], dim=1)

    def n_rows_used(n_rows):
        rows = embedding(ngrams=[ngram], n_rows=n_rows).rows(windows)
        return len(rows[:, column].unique())

    assert n_rows_used(10**6) >= 0.99 * len(pairs)
    assert n_rows_used(100) >= 99


def test_no_ngram_has_the_character_itself_and_none_occurs_twice():
    assert all(0 not in ngram for ngram in NGRAMS)
    assert len(set(NGRAMS)) == len(NGRAMS)


@pytest.mark.parametrize("longest", [2, 3, 4])
def test_both_halves_of_the_ngrams_have_as_many_of_each_length(longest):
    lengths = [len(ngram) for ngram in NGRAMS if len(ngram) <= longest]
    half = len(lengths) // 2

    assert sorted(lengths[:half]) == sorted(lengths[half:])


def test_a_table_of_zeros_changes_nothing():
    """And building it draws no random numbers: the same seed gives the same other weights."""
    sizes = {"n_tokens": N_TOKENS, "d_model": 4, "n_layers": 1, "n_heads": 2, "d_ff": 8}
    torch.manual_seed(0)
    plain = ModernEncoder(**sizes)

    torch.manual_seed(0)
    ngrams = NgramEmbedding(n_tokens=N_TOKENS, d_model=4, ngrams=NGRAMS, n_rows=100)
    with_table = ModernEncoder(**sizes, ngrams=ngrams)

    assert torch.equal(plain(INPUTS), with_table(INPUTS))


def sum_of_kept_rows(module, table, is_kept):
    """The vectors of INPUTS from a table, without the rows that are dropped."""
    rows = table[module.rows(INPUTS)]
    kept = rows * is_kept.view(3, 9, -1, 1)
    parts = kept.chunk(module.n_parts, dim=-2)
    return torch.cat([part.sum(-2) for part in parts], dim=-1)


@pytest.mark.parametrize("n_parts", [1, 2])
@pytest.mark.parametrize(
    ("sparse", "dropout", "n_rows"),
    [(True, 0.0, 20), (True, 0.5, 1_000), (False, 0.5, 1_000)],
)
def test_values_and_gradients_are_those_of_the_sum_of_rows_that_are_not_dropped(
    sparse, dropout, n_rows, n_parts
):
    module = embedding(n_rows=n_rows, n_parts=n_parts)
    module.table.sparse = sparse
    module.dropout = dropout
    target = torch.randn(3, 9, 4, generator=generator(2))

    torch.manual_seed(0)
    vectors = module(INPUTS)
    (vectors * target).sum().backward()
    gradient = module.table.weight.grad

    torch.manual_seed(0)
    table = module.table.weight.detach().requires_grad_()
    weights = F.dropout(torch.ones(27, len(NGRAMS)), dropout)
    expected = sum_of_kept_rows(module, table, weights)

    (expected * target).sum().backward()

    assert (weights == 0).any() == bool(dropout)
    assert torch.allclose(vectors, expected, atol=1e-5)
    assert torch.allclose(gradient.to_dense(), table.grad, atol=1e-5)
    assert gradient.is_sparse == sparse

    if sparse:  # it has as many rows, whatever the size of the table
        assert gradient._nnz() == len(module.rows(INPUTS).unique())

    module.eval()
    without_dropout = embedding(n_rows=n_rows, n_parts=n_parts)

    assert torch.allclose(module(INPUTS), without_dropout(INPUTS), atol=1e-5)
