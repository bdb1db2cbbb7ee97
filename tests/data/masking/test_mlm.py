import pytest
import torch
from labml_nn.transformers.mlm import MLM as OriginalMLM

from data.masking import MLM, IndependentMasker
from tests.data.masking.helpers import (
    CLS,
    MASK,
    N_CHARS,
    PAD,
    chi_square,
    text,
    within_four_standard_errors,
)


def mlm(**changes):
    """An MLM after PyTorch's generator is seeded."""
    torch.manual_seed(0)
    return MLM(
        padding_token=PAD,
        mask_token=MASK,
        no_mask_tokens=[CLS],
        n_tokens=N_CHARS + 3,
        **changes,
    )


def test_the_settings_are_attributes_with_the_names_of_the_original():
    original = OriginalMLM(
        padding_token=PAD,
        mask_token=MASK,
        no_mask_tokens=[CLS],
        n_tokens=N_CHARS + 3,
    )
    expected = vars(original)
    expected["no_mask_tokens"] = sorted(expected["no_mask_tokens"])
    ours = vars(mlm())
    assert {name: ours[name] for name in expected} == expected


@pytest.mark.parametrize("shape", [(), (7,), (3, 5), (2, 3, 4)])
def test_any_shape_is_accepted_and_the_argument_is_not_modified(shape):
    x = text(*shape)
    before = x.clone()
    inputs, labels = mlm(masking_prob=0.5)(x)

    assert inputs.shape == labels.shape == x.shape
    assert torch.equal(x, before)


def test_only_selected_positions_have_labels():
    x = text(1_000, 100)
    inputs, labels = mlm()(x)
    selected = labels != PAD

    assert torch.equal(labels[selected], x[selected])
    assert torch.equal(inputs[~selected], x[~selected])
    assert within_four_standard_errors(int(selected.sum()), x.numel(), 0.15)


def test_shares_are_80_10_10_over_a_million_draws():
    x = torch.full((1_000_000,), 7)
    inputs, labels = mlm(masking_prob=1.0)(x)

    assert (labels == 7).all()

    shares = torch.full((N_CHARS + 3,), 0.1 / N_CHARS)
    shares[7] += 0.1  # one random token in N_CHARS is the original
    shares[MASK] = 0.8
    shares[[PAD, CLS]] = 0.0

    assert chi_square(inputs.bincount(minlength=N_CHARS + 3), shares) < 4


def test_special_tokens_are_never_selected_or_drawn():
    x = text(100_000, high=N_CHARS + 3)
    inputs, labels = mlm(masking_prob=1.0, randomize_prob=1.0, no_change_prob=0.0)(x)
    special = x >= N_CHARS

    assert (labels[special] == PAD).all()
    assert torch.equal(inputs[special], x[special])
    assert (inputs[~special] < N_CHARS).all()


def test_shares_above_one_are_refused():
    with pytest.raises(ValueError, match="at most 1 together"):
        mlm(randomize_prob=0.6, no_change_prob=0.6)


def test_an_independent_masker_returns_what_its_mlm_returns_at_the_rate_of_the_stage():
    tokens = text(50, 40)
    batch = IndependentMasker(mlm())(tokens, torch.arange(2_000).view(50, 40), 0.3)
    inputs, labels = mlm(masking_prob=0.3)(tokens)

    assert torch.equal(batch.inputs, inputs)
    assert torch.equal(batch.labels, labels[labels != PAD])
    assert torch.equal(tokens.flatten()[batch.positions], batch.labels)
    assert batch.positions.ndim == 1
