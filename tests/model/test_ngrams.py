import pytest
import torch

from model import MaskedLanguageModel, ModernEncoder
from model.ngrams import FACTOR, NGRAMS, PRIME, NgramEmbedding

N_TOKENS, MASK = 30, 29
INPUTS = torch.randint(N_TOKENS, (3, 9), generator=torch.Generator().manual_seed(0))


def embedding(ngrams=NGRAMS, max_rows: int = 1_000) -> NgramEmbedding:
    """With rows that differ from each other, as if it had been trained."""
    module = NgramEmbedding(n_tokens=N_TOKENS, d_model=4, ngrams=ngrams, max_rows=max_rows)
    torch.nn.init.normal_(module.tables.weight, generator=torch.Generator().manual_seed(1))
    return module


def row_of(symbols: list[int], max_rows: int) -> int:
    """The row of one n-gram in its own table."""
    number = 0
    for symbol in symbols:
        number = number * (N_TOKENS + 1) + symbol
    if (N_TOKENS + 1) ** len(symbols) <= max_rows:
        return number
    return number % PRIME * FACTOR % PRIME * max_rows // PRIME


@pytest.mark.parametrize("max_rows", [1, 10, 31**2 - 1, 31**2, 31**3])
def test_the_vectors_are_those_of_a_plain_loop(max_rows: int):
    """Windows that contain [MASK]; the symbol after the last token lies beyond their borders."""
    inputs = INPUTS.clone()
    inputs[0, 2:5] = MASK
    module = embedding(max_rows=max_rows)
    vectors = module(inputs)
    for window, tokens in enumerate(inputs.tolist()):
        for position in range(len(tokens)):
            expected, first_row = torch.zeros(4), 0
            for ngram in NGRAMS:
                columns = [position + offset for offset in ngram]
                symbols = [tokens[i] if 0 <= i < len(tokens) else N_TOKENS for i in columns]
                expected += module.tables.weight[first_row + row_of(symbols, max_rows)]
                first_row += min((N_TOKENS + 1) ** len(ngram), max_rows)
            assert torch.allclose(vectors[window, position], expected, atol=1e-6)
    assert len(module.tables.weight) == first_row


def test_a_vocabulary_of_any_size_has_rows():
    """The number of a 4-gram of 100,000 symbols does not fit into 64 bits."""
    module = NgramEmbedding(n_tokens=100_000, d_model=2, ngrams=NGRAMS, max_rows=50)
    rows = module.rows(torch.randint(100_000, (4, 64), generator=torch.Generator().manual_seed(0)))
    tables = torch.arange(len(NGRAMS)) * 50
    assert ((rows >= tables) & (rows < tables + 50)).all()
    assert len(rows.unique()) > 0.9 * 50 * len(NGRAMS)  # hashed evenly


def test_distinct_ngrams_share_a_row_only_if_there_are_more_ngrams_than_rows():
    pairs = torch.cartesian_prod(torch.arange(N_TOKENS), torch.arange(N_TOKENS))  # every bigram, each in a window
    for max_rows, n_distinct in ((31**2, N_TOKENS**2), (100, 100)):
        rows = embedding([(-2, -1)], max_rows).rows(torch.cat([pairs, pairs[:, :1]], dim=1))
        assert len(rows[:, 2].unique()) == n_distinct


def test_a_vector_depends_on_the_characters_of_its_ngrams_only():
    module = embedding([(-2, -1), (1, 2)])
    before = module(INPUTS)
    for column in range(9):
        changed = INPUTS.clone()
        changed[:, column] = (changed[:, column] + 1) % N_TOKENS
        differs = (module(changed) != before).any(-1).any(0)
        assert differs.nonzero().flatten().tolist() == [i for i in range(9) if abs(i - column) in (1, 2)]


def test_the_character_itself_is_in_none_of_its_ngrams():
    assert all(0 not in ngram for ngram in NGRAMS)
    assert len(set(NGRAMS)) == len(NGRAMS)


def test_tables_of_zeros_change_nothing():
    torch.manual_seed(0)
    plain = ModernEncoder(n_tokens=N_TOKENS, d_model=4, n_layers=1, n_heads=2, d_ff=8)
    tables = NgramEmbedding(n_tokens=N_TOKENS, d_model=4, ngrams=NGRAMS, max_rows=100)
    torch.manual_seed(0)
    with_tables = ModernEncoder(n_tokens=N_TOKENS, d_model=4, n_layers=1, n_heads=2, d_ff=8, ngrams=tables)
    assert torch.equal(plain(INPUTS), with_tables(INPUTS))


@pytest.mark.parametrize("sparse", [True, False])
def test_only_rows_that_were_looked_up_have_a_gradient(sparse: bool):
    module = embedding()
    module.tables.sparse = sparse
    (module(INPUTS).square().sum()).backward()
    gradient = module.tables.weight.grad
    assert gradient.is_sparse == sparse
    with_gradient = gradient.to_dense().abs().sum(1).nonzero().flatten()
    assert with_gradient.tolist() == module.rows(INPUTS).unique().tolist()


def test_the_gradient_is_that_of_the_sum_of_rows():
    module = embedding(max_rows=20)
    module.tables.sparse = True
    target = torch.randn(3, 9, 4, generator=torch.Generator().manual_seed(2))
    (module(INPUTS) * target).sum().backward()
    by_rows, table = module.tables.weight.grad.to_dense(), module.tables.weight.detach().requires_grad_()
    (table[module.rows(INPUTS)].sum(-2) * target).sum().backward()
    assert torch.allclose(by_rows, table.grad, atol=1e-5)


def test_compiled_sparse_gradients_are_the_same_in_every_run():
    """A batch in which rows repeat often: sums of floats depend on their order."""
    tokens = torch.randint(3, (64, 64), generator=torch.Generator().manual_seed(0))
    encoder = ModernEncoder(n_tokens=N_TOKENS, d_model=4, n_layers=1, n_heads=2, d_ff=8, ngrams=embedding())
    model = MaskedLanguageModel(encoder)
    encoder.ngrams.tables.sparse = True
    compiled = torch.compile(lambda: model(tokens).square().sum(), dynamic=False)
    gradients = []
    for _ in range(5):
        model.zero_grad()
        compiled().backward()
        gradients.append(encoder.ngrams.tables.weight.grad.coalesce().values())
    assert all(torch.equal(gradients[0], gradient) for gradient in gradients)
