import pytest
import torch

from model import ModernEncoder
from model.ngrams import NGRAMS, NgramEmbedding

N_TOKENS = 30
MASK = 29
INPUTS = torch.randint(N_TOKENS, (3, 9), generator=torch.Generator().manual_seed(0))


def embedding(**settings):
    """With rows that differ from each other, as if it had been trained."""
    defaults = {"n_tokens": N_TOKENS, "d_model": 4, "ngrams": NGRAMS, "n_rows": 1_000}
    module = NgramEmbedding(**defaults | settings)
    torch.nn.init.normal_(
        module.table.weight, generator=torch.Generator().manual_seed(1)
    )
    return module


@pytest.mark.parametrize(
    ("n_rows", "n_parts"), [(1, 1), (10, 1), (1_000, 1), (2**20, 1), (1_000, 2)]
)
def test_the_vectors_are_those_of_a_plain_loop(n_rows, n_parts):
    """Windows that contain [MASK]; the symbol after the last token lies beyond their borders."""
    inputs = INPUTS.clone()
    inputs[0, 2:5] = MASK
    module = embedding(n_rows=n_rows, n_parts=n_parts)
    length = 4 // n_parts  # of a row
    vectors = module(inputs)
    for window, tokens in enumerate(inputs.tolist()):
        for position in range(len(tokens)):
            expected = torch.zeros(4)
            for i, ngram in enumerate(NGRAMS):
                number = module.summands[i].item()
                for offset in ngram:
                    column = position + offset
                    symbol = tokens[column] if 0 <= column < len(tokens) else N_TOKENS
                    number += symbol * module.factors[4 + offset, i].item()
                first = i * n_parts // len(NGRAMS) * length
                row = module.table.weight[
                    ((number + 2**63) % 2**64 >> 33) * n_rows >> 31
                ]
                expected[first : first + length] += row
            assert torch.allclose(vectors[window, position], expected, atol=1e-5)


@pytest.mark.parametrize("n_tokens", [30, 100_000])
def test_ngrams_are_spread_evenly_over_the_rows(n_tokens):
    tokens = torch.randint(
        n_tokens, (50, 64), generator=torch.Generator().manual_seed(0)
    )
    rows = embedding(n_tokens=n_tokens).rows(tokens)
    counts = rows[:, 4:-4].flatten().bincount()

    assert len(counts) == 1_000
    assert counts.min() > 0
    assert counts.max() < 3 * counts.float().mean()


def test_few_ngrams_share_a_row_if_there_are_many_rows():
    # every bigram, each in a window
    pairs = torch.cartesian_prod(torch.arange(N_TOKENS), torch.arange(N_TOKENS))
    windows = torch.cat([pairs, pairs[:, :1]], dim=1)
    for n_rows, n_distinct in ((10**6, 0.99 * N_TOKENS**2), (100, 99)):
        for ngram, column in (((-2, -1), 2), ((1, 2), 0)):
            rows = embedding(ngrams=[ngram], n_rows=n_rows).rows(windows)
            assert (
                n_distinct <= len(rows[:, column].unique()) <= min(n_rows, N_TOKENS**2)
            )


def test_no_ngram_has_the_character_itself_and_none_occurs_twice():
    assert all(0 not in ngram for ngram in NGRAMS)
    assert len(set(NGRAMS)) == len(NGRAMS)


@pytest.mark.parametrize("longest", [2, 3, 4])
def test_both_halves_of_the_ngrams_have_as_many_of_each_length(longest):
    lengths = [len(ngram) for ngram in NGRAMS if len(ngram) <= longest]
    assert sorted(lengths[: len(lengths) // 2]) == sorted(lengths[len(lengths) // 2 :])


def test_a_table_of_zeros_changes_nothing():
    """And building it draws no random numbers: the same seed gives the same other weights."""
    torch.manual_seed(0)
    plain = ModernEncoder(n_tokens=N_TOKENS, d_model=4, n_layers=1, n_heads=2, d_ff=8)
    torch.manual_seed(0)
    ngrams = NgramEmbedding(n_tokens=N_TOKENS, d_model=4, ngrams=NGRAMS, n_rows=100)
    with_table = ModernEncoder(
        n_tokens=N_TOKENS, d_model=4, n_layers=1, n_heads=2, d_ff=8, ngrams=ngrams
    )

    assert torch.equal(plain(INPUTS), with_table(INPUTS))


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
    target = torch.randn(3, 9, 4, generator=torch.Generator().manual_seed(2))
    torch.manual_seed(0)
    vectors = module(INPUTS)
    (vectors * target).sum().backward()
    table = module.table.weight.detach().requires_grad_()
    torch.manual_seed(0)
    weights = torch.nn.functional.dropout(torch.ones(27, len(NGRAMS)), dropout).view(
        3, 9, -1
    )
    kept = table[module.rows(INPUTS)] * weights.unsqueeze(-1)
    expected = torch.cat([part.sum(-2) for part in kept.chunk(n_parts, dim=-2)], dim=-1)
    (expected * target).sum().backward()

    assert torch.allclose(vectors, expected, atol=1e-5)

    gradient = module.table.weight.grad
    assert torch.allclose(gradient.to_dense(), table.grad, atol=1e-5)
    assert gradient.is_sparse == sparse
    # whatever the size of the table
    assert not sparse or gradient._nnz() == len(module.rows(INPUTS).unique())
    assert (weights == 0).any() == bool(dropout)

    module.eval()
    without_dropout = embedding(n_rows=n_rows, n_parts=n_parts)

    assert torch.allclose(module(INPUTS), without_dropout(INPUTS), atol=1e-5)
