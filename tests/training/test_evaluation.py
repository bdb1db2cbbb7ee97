import pytest
import torch
from torch import nn
from torch.nn import functional as F

from data.bound_masks import bound_masks
from data.protocol import ValidationSet, protocol_masks
from tests.model.conftest import small_model
from training.callbacks.any_order_bound import any_order_bound
from training.callbacks.weight_norm import weight_norm
from training.evaluation import evaluate, masked_outcomes, per_window

MASK = 29


def validation(n_windows):
    windows = torch.randint(
        28, (n_windows, 256), generator=torch.Generator().manual_seed(1)
    )
    return ValidationSet(windows, protocol_masks(n_windows))


@torch.no_grad()
def test_the_loss_is_the_mean_cross_entropy_of_the_masked_positions():
    model = small_model().eval()
    data = validation(70)
    logits = model(data.windows.masked_fill(data.masked, MASK))[data.masked.flatten()]
    labels = data.windows[data.masked]
    losses = F.cross_entropy(logits, labels, reduction="none").view(70, 38)

    result = evaluate(model, data, MASK, seq_len=256)

    assert result.loss == pytest.approx(losses.mean().item(), abs=1e-5)
    assert result.loss_stderr == pytest.approx(
        losses.mean(1).std().item() / 70**0.5, abs=1e-5
    )
    assert result.accuracy == (logits.argmax(-1) == labels).double().mean().item()
    assert result.loss_at_seq_len == result.loss


@torch.no_grad()
@pytest.mark.parametrize("seq_len", [32, 96])  # 96 leaves a shorter piece at the end
def test_at_the_training_length_the_model_sees_each_piece_alone(seq_len):
    model = small_model().eval()
    data = validation(4)
    losses = []

    for row, masked in zip(data.windows, data.masked, strict=True):
        for tokens, mask in zip(row.split(seq_len), masked.split(seq_len), strict=True):
            logits = model(tokens.masked_fill(mask, MASK)[None])[mask]
            losses.append(F.cross_entropy(logits, tokens[mask], reduction="none"))

    expected = torch.cat(losses).mean().item()
    result = evaluate(model, data, MASK, seq_len)

    assert result.loss_at_seq_len == pytest.approx(expected, abs=1e-5)


def test_evaluations_have_no_dropout_draw_nothing_and_agree_bit_for_bit():
    model = small_model(dropout=0.5)
    data = validation(70)
    before = torch.get_rng_state()
    first, second = (evaluate(model, data, MASK, seq_len=32) for _ in range(2))

    assert (first.window_losses == second.window_losses).all()
    assert (first.loss, first.accuracy) == (second.loss, second.accuracy)
    assert model.training  # its mode is restored
    assert torch.equal(torch.get_rng_state(), before)


def test_a_window_without_masks_has_a_loss_of_zero():
    data = validation(3)
    data.masked[1] = False
    outcomes = masked_outcomes(small_model(), data.windows, data.masked, MASK)
    losses = per_window(outcomes[0], data.masked)
    assert losses[1] == 0
    assert losses[0] > 0


def test_the_weight_norm_counts_shared_weights_once_and_tables_never():
    threes = nn.Linear(2, 2, bias=False)
    ones = nn.Linear(2, 2, bias=False)
    nn.init.constant_(threes.weight, 3.0)
    nn.init.constant_(ones.weight, 1.0)
    model = nn.Sequential(threes, ones, nn.EmbeddingBag(5, 2), threes)

    assert weight_norm(model) == pytest.approx(5**0.5)


def test_the_masks_of_the_bound_cover_all_numbers_of_masked_positions():
    counts = bound_masks(validation(64), rounds=4).sum(-1)  # [4, 64]
    for i, part in enumerate(counts):
        assert set(part.tolist()) == set(range(64 * i + 1, 64 * i + 65))

    for window in counts.T:
        assert len(window.unique()) == 4


def test_the_masks_of_the_bound_leave_unknown_characters_visible():
    data = validation(8)
    data.windows[:, ::2] = 28
    known = ValidationSet(data.windows, data.masked, maskable=data.windows != 28)
    masks = bound_masks(known, rounds=2)
    counts = masks.sum(-1)

    assert not masks[:, :, ::2].any()
    assert counts.min() >= 1
    assert counts.max() > 100


def test_the_bound_gives_every_number_of_masked_positions_the_same_weight():
    """A model that always says the same: the bound is the mean of its losses, over whatever is
    masked."""
    data = validation(4)
    model = small_model()
    nn.init.zeros_(model.encoder.embedding.weight)
    nn.init.normal_(model.decoder_bias)
    losses = -model.decoder_bias.detach().log_softmax(-1)[data.windows]
    masks = bound_masks(data, rounds=8)
    expected = ((losses * masks).sum(-1) / masks.sum(-1)).mean(0)

    bound = any_order_bound(model, data.windows, masks, MASK)

    assert torch.allclose(bound.float(), expected, atol=1e-5)
