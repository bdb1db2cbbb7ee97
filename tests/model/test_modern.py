import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from model import MaskedLanguageModel, ModernEncoder
from model.modern import mix, rotary_table, rotate
from tests.data.masking.helpers import generator
from tests.model.conftest import INPUTS, small_model


@pytest.fixture
def model():
    return small_model(n_heads=4).eval()


@pytest.mark.parametrize("changed", [0, 9, 11, 19])
def test_the_model_is_bidirectional(model, changed):
    """Changing a character on either side of a position changes its logits, but not those of other
    windows."""
    other = INPUTS.clone()
    other[0, changed] = (other[0, changed] + 1) % 30
    positions = torch.tensor([10, 30, 50])
    before = model(INPUTS, positions)
    after = model(other, positions)

    assert not torch.allclose(before[0], after[0], atol=1e-4)
    assert torch.allclose(before[1:], after[1:], atol=1e-5)


def test_only_distances_between_characters_matter():
    """Rotary positions: the product of a rotated query and a rotated key depends on their distance."""
    rotary = rotary_table(20, 8)
    query, key = torch.randn(2, 8, generator=generator())
    queries = rotate(query.expand(20, 8), rotary)
    keys = rotate(key.expand(20, 8), rotary)
    products = queries @ keys.T

    for distance in range(-19, 20):
        diagonal = products.diagonal(distance)
        assert torch.allclose(diagonal, diagonal[0], atol=1e-4)

    # and left is not right
    assert not torch.allclose(products[0, 3], products[3, 0], atol=1e-4)


def test_the_masked_head_gives_the_loss_and_gradients_of_the_full_head(model):
    model.double()
    columns = torch.rand(3, 20, generator=generator(2)).argsort()[:, :4]
    starts = 20 * torch.arange(3)
    per_window = columns + starts.unsqueeze(1)
    positions = per_window.flatten()
    labels = INPUTS.flatten()[positions]

    def loss_and_gradients(logits):
        loss = F.cross_entropy(logits.flatten(0, -2), labels)
        return loss, *torch.autograd.grad(loss, list(model.parameters()))

    full = loss_and_gradients(model(INPUTS)[positions])

    for each in (positions, per_window):
        masked = loss_and_gradients(model(INPUTS, each))
        assert_close(masked, full, rtol=0, atol=1e-9)


def test_autocast_on_a_cpu_leaves_attention_in_float32_and_changes_logits_little(model):
    heads = torch.randn(3, 1, 1, 5, 8).bfloat16()
    with torch.autocast("cpu"):
        logits = model(INPUTS)
        mixed = mix(*heads, None, 0.0)

    assert mixed.dtype == torch.float32
    assert not torch.equal(logits, model(INPUTS))
    assert torch.allclose(logits.float(), model(INPUTS), atol=0.05)


def test_new_layers_are_the_identity_and_have_no_bias():
    encoder = ModernEncoder(n_tokens=30, d_model=32, n_layers=3, n_heads=4, d_ff=48)
    embedded = encoder.embedding_norm(encoder.embedding(INPUTS))

    assert torch.equal(encoder(INPUTS), encoder.final_norm(embedded))

    names = dict(MaskedLanguageModel(encoder).named_parameters())

    assert [name for name in names if "bias" in name] == ["decoder_bias"]


def test_dropout_is_active_in_training_only():
    model = small_model(dropout=0.5)
    assert not torch.equal(model(INPUTS), model(INPUTS))

    model.eval()
    assert torch.equal(model(INPUTS), model(INPUTS))
