import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data.masking import IGNORED_LABEL, MLM, Corruption, IndependentMasker, Masker, n_masked_in

N_CHARS, PAD, MASK, CLS = 20, 20, 21, 22
N_TOKENS = 23
CPU = torch.device("cpu")


def mlm(**changes) -> MLM:
    settings = {
        "padding_token": PAD,
        "mask_token": MASK,
        "no_mask_tokens": [CLS],
        "n_tokens": N_TOKENS,
        "generator": torch.Generator().manual_seed(0),
    }
    return MLM(**{**settings, **changes})


def masker(weights: torch.Tensor | None = None, randomize_prob=0.1, no_change_prob=0.1, **settings) -> Masker:
    weights = torch.cat([torch.ones(N_CHARS), torch.zeros(3)]) if weights is None else weights
    corruption = Corruption(
        mask_token=MASK, random_token_weights=weights, randomize_prob=randomize_prob, no_change_prob=no_change_prob
    )
    return Masker(corruption, device=CPU, **{"seed": 0, **settings})


def text(*shape: int, high: int = N_CHARS) -> torch.Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(1))


def offsets(tokens: torch.Tensor) -> torch.Tensor:
    return torch.arange(tokens.numel()).view(tokens.shape)


def within_four_standard_errors(count: int, n: int, share: float) -> bool:
    return abs(count / n - share) < 4 * (share * (1 - share) / n) ** 0.5


# ---- MLM: the interface of the annotated implementation


@pytest.mark.parametrize("shape", [(), (7,), (3, 5), (2, 3, 4)])
def test_mlm_takes_any_shape_and_leaves_its_argument_alone(shape):
    x = text(*shape)
    before = x.clone()
    inputs, labels = mlm(masking_prob=0.5)(x)
    assert inputs.shape == labels.shape == x.shape
    assert torch.equal(x, before)


def test_mlm_labels_the_selected_positions_and_no_other():
    x = text(1_000, 100)
    inputs, labels = mlm()(x)
    selected = labels != PAD
    assert torch.equal(labels[selected], x[selected])
    assert torch.equal(inputs[~selected], x[~selected])
    assert within_four_standard_errors(int(selected.sum()), x.numel(), 0.15)


def test_mlm_shares_are_exactly_80_10_10_over_a_million_draws():
    x = torch.full((1_000_000,), 7)
    inputs, labels = mlm(masking_prob=1.0)(x)
    assert (labels == 7).all()
    n = len(x)
    assert within_four_standard_errors(int((inputs == MASK).sum()), n, 0.8)
    # A random token is the original one time in N_CHARS.
    assert within_four_standard_errors(int((inputs == 7).sum()), n, 0.1 + 0.1 / N_CHARS)
    for token in set(range(N_CHARS)) - {7}:
        assert within_four_standard_errors(int((inputs == token).sum()), n, 0.1 / N_CHARS)


def test_mlm_never_selects_and_never_draws_special_tokens():
    x = text(1_000_000, high=N_TOKENS)
    inputs, labels = mlm(masking_prob=1.0, randomize_prob=1.0, no_change_prob=0.0)(x)
    special = x >= N_CHARS
    assert (labels[special] == PAD).all()
    assert torch.equal(inputs[special], x[special])
    assert (inputs[~special] < N_CHARS).all()


def test_character_id_0_is_a_target_like_any_other():
    _, labels = mlm(masking_prob=1.0)(torch.zeros(100, dtype=torch.int64))
    assert (labels == 0).all()
    batch = masker()(torch.zeros(4, 20, dtype=torch.int64), offsets(text(4, 20)), 0.5)
    assert (batch.labels == 0).all()
    _, labels = mlm(masking_prob=1.0, randomize_prob=1.0, no_change_prob=0.0)(torch.ones(10_000, dtype=torch.int64))
    inputs = mlm(masking_prob=1.0, randomize_prob=1.0, no_change_prob=0.0)(torch.ones(10_000, dtype=torch.int64))[0]
    assert (inputs == 0).any()  # and it is drawn as a random token


def test_shares_above_one_are_refused():
    with pytest.raises(ValueError, match="at most 1 together"):
        mlm(randomize_prob=0.6, no_change_prob=0.6)


# ---- Masker: what training uses


@given(
    batch=st.integers(1, 5),
    seq_len=st.integers(1, 70),
    masking_prob=st.floats(0.001, 1.0),
    seed=st.integers(0, 2**31),
)
def test_every_window_has_exactly_the_count_asked_for(batch, seq_len, masking_prob, seed):
    tokens = text(batch, seq_len)
    before = tokens.clone()
    masked = masker(seed=seed)(tokens, offsets(tokens), masking_prob)
    rows = torch.bincount(masked.positions // seq_len, minlength=batch)
    assert rows.tolist() == [n_masked_in(seq_len, masking_prob)] * batch
    assert masked.positions.unique().numel() == masked.positions.numel()
    assert torch.equal(masked.labels, tokens.flatten()[masked.positions])
    hidden = torch.zeros(batch * seq_len, dtype=torch.bool).index_fill(0, masked.positions, True)
    assert torch.equal(masked.inputs.flatten()[~hidden], tokens.flatten()[~hidden])
    assert torch.equal(tokens, before)


def test_masker_shares_are_exactly_80_10_10_over_a_million_draws():
    tokens = torch.full((1_000, 1_000), 7)
    batch = masker()(tokens, offsets(tokens), 1.0)
    n = tokens.numel()
    assert within_four_standard_errors(int((batch.inputs == MASK).sum()), n, 0.8)
    assert within_four_standard_errors(int((batch.inputs == 7).sum()), n, 0.1 + 0.1 / N_CHARS)
    assert int(batch.inputs.max()) == MASK
    assert not torch.isin(batch.inputs, torch.tensor([PAD, CLS])).any()


def test_every_position_is_selected_as_often_as_any_other():
    tokens = text(20_000, 16)
    batch = masker()(tokens, offsets(tokens), 0.25)
    for column in torch.bincount(batch.positions % 16).tolist():
        assert within_four_standard_errors(column, len(tokens), 0.25)


def test_random_characters_by_frequency():
    counts = torch.cat([torch.arange(N_CHARS).float(), torch.zeros(3)])
    tokens = torch.full((500, 1_000), 7)
    drawn = masker(counts, randomize_prob=1.0, no_change_prob=0.0)(tokens, offsets(tokens), 1.0).inputs
    shares = counts[:N_CHARS] / counts.sum()
    for count, share in zip(torch.bincount(drawn.flatten(), minlength=N_CHARS).tolist(), shares.tolist(), strict=True):
        assert count == 0 if share == 0 else within_four_standard_errors(count, tokens.numel(), share)


def test_characters_that_are_never_selected():
    tokens = text(200, 50, high=4)
    batch = masker(no_mask_tokens=[2])(tokens, offsets(tokens), 0.5)
    assert (batch.labels != 2).all()
    # Some windows have fewer than half of other characters; what is left over is ignored and unchanged.
    mostly = torch.where(text(200, 50, high=10) < 8, 2, 1)
    batch = masker(no_mask_tokens=[2])(mostly, offsets(mostly), 0.5)
    assert batch.labels.shape == (200 * 25,)
    assert set(batch.labels.tolist()) == {1, IGNORED_LABEL}
    assert int((batch.labels == 1).sum()) == int((mostly == 1).sum(1).clamp(max=25).sum())
    ignored = batch.positions[batch.labels == IGNORED_LABEL]
    assert (batch.inputs.flatten()[ignored] == 2).all()


def test_dynamic_masks_change_and_static_masks_stay():
    tokens = text(8, 64)
    at = offsets(tokens)
    dynamic = masker()
    assert not torch.equal(dynamic(tokens, at, 0.15).positions, dynamic(tokens, at, 0.15).positions)
    static = masker(static=True, corpus_len=tokens.numel())
    first, second = static(tokens, at, 0.15), static(tokens, at, 0.15)
    assert torch.equal(first.positions.sort().values, second.positions.sort().values)
    assert torch.equal(first.inputs, second.inputs)
    # The same window in another row of another batch has the same masks.
    alone = static(tokens[3:4], at[3:4], 0.15)
    assert torch.equal(alone.inputs[0], first.inputs[3])


def test_the_same_seed_or_state_gives_the_same_masks():
    tokens = text(4, 32)
    first, second = masker(seed=5), masker(seed=5)
    assert torch.equal(first(tokens, offsets(tokens), 0.2).inputs, second(tokens, offsets(tokens), 0.2).inputs)
    third = masker(seed=6)
    third.load_state_dict(first.state_dict())
    assert torch.equal(first(tokens, offsets(tokens), 0.2).inputs, third(tokens, offsets(tokens), 0.2).inputs)


def test_an_independent_masker_gives_the_same_as_its_mlm():
    tokens = text(50, 40)
    batch = IndependentMasker(mlm(), PAD)(tokens, offsets(tokens), 0.15)
    inputs, labels = mlm()(tokens)
    assert torch.equal(batch.inputs, inputs)
    assert torch.equal(batch.labels, labels[labels != PAD])
    assert torch.equal(tokens.flatten()[batch.positions], batch.labels)
