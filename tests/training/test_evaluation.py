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


def validation(n_windows=70):
    windows = torch.randint(28, (n_windows, 256), generator=torch.Generator().manual_seed(1))
    return ValidationSet(windows, protocol_masks(n_windows))


def test_the_loss_is_the_mean_cross_entropy_of_the_masked_positions():
    net, data = small_model().eval(), validation()
    logits = net(data.windows.masked_fill(data.masked, MASK)).view(70, 256, 30)[data.masked]
    labels = data.windows[data.masked]
    result = evaluate(net, data, mask_token=MASK, seq_len=256)
    assert abs(result.loss - F.cross_entropy(logits, labels).item()) < 1e-5
    assert result.accuracy == (logits.argmax(-1) == labels).double().mean().item()
    per_window = F.cross_entropy(logits, labels, reduction="none").view(70, 38).mean(1)
    assert abs(result.loss_stderr - (per_window.std() / 70**0.5).item()) < 1e-5
    assert result.loss_at_seq_len == result.loss


def test_at_the_training_length_the_model_sees_each_piece_alone():
    net, data = small_model().eval(), validation(4)
    for seq_len in (32, 96):  # 96 leaves a shorter piece at the end
        losses = []
        for row, masked in zip(data.windows, data.masked, strict=True):
            for tokens, mask in zip(row.split(seq_len), masked.split(seq_len), strict=True):
                logits = net(tokens.masked_fill(mask, MASK)[None])[mask]
                losses.append(F.cross_entropy(logits, tokens[mask], reduction="none"))
        expected = torch.cat(losses).mean().item()
        assert (
            abs(evaluate(net, data, mask_token=MASK, seq_len=seq_len).loss_at_seq_len - expected)
            < 1e-5
        )


def test_evaluations_have_no_dropout_draw_nothing_and_agree_bit_for_bit():
    net, data, before = small_model(dropout=0.5), validation(), torch.get_rng_state()
    first, second = (evaluate(net, data, mask_token=MASK, seq_len=32) for _ in range(2))
    assert (first.window_losses == second.window_losses).all()
    assert (first.loss, first.accuracy) == (second.loss, second.accuracy)
    assert net.training  # its mode is restored
    assert torch.equal(torch.get_rng_state(), before)


def test_a_window_without_masks_has_a_loss_of_zero():
    data = validation(3)
    data.masked[1] = False
    losses, correct = per_window(
        masked_outcomes(small_model(), data.windows, data.masked, MASK), data.masked
    )
    assert losses[1] == correct[1] == 0
    assert losses[0] > 0


def test_the_weight_norm_counts_shared_weights_once_and_tables_never():
    model = nn.Sequential(
        nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False), nn.EmbeddingBag(5, 2)
    )
    nn.init.constant_(model[0].weight, 3.0)
    nn.init.constant_(model[1].weight, 1.0)
    assert weight_norm(model) == pytest.approx(5**0.5)
    model.append(model[0])
    assert weight_norm(model) == pytest.approx(5**0.5)


def test_the_masks_of_the_bound_cover_all_numbers_of_masked_positions_and_leave_unknown_characters_visible():
    counts = bound_masks(validation(64), rounds=4).sum(-1)  # [4, 64]
    assert all(
        part.sort().values.tolist() == list(range(64 * i + 1, 64 * i + 65))
        for i, part in enumerate(counts)
    )
    assert all(len(set(window.tolist())) == 4 for window in counts.T)
    data = validation(8)
    data.windows[:, ::2] = 28
    masks = bound_masks(ValidationSet(data.windows, data.masked, unknown=28), rounds=2)
    assert not masks[:, :, ::2].any()
    assert masks.sum(-1).amin() >= 1
    assert masks.sum(-1).amax() > 100


def test_the_bound_gives_every_number_of_masked_positions_the_same_weight():
    """A model that always says the same: the bound is the mean of its losses, over whatever is
    masked."""
    data, net = validation(4), small_model()
    nn.init.zeros_(net.encoder.embedding.weight)
    nn.init.normal_(net.decoder_bias)
    losses = -net.decoder_bias.detach().log_softmax(-1)[data.windows]
    masks = bound_masks(data, rounds=8)
    expected = torch.stack(
        [losses.masked_fill(~mask, 0).sum(1) / mask.sum(1) for mask in masks]
    ).mean(0)
    assert torch.allclose(
        any_order_bound(net, data.windows, masks, MASK).float(), expected, atol=1e-5
    )
