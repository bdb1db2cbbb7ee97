"""The objective: the cross-entropy over masked positions, plus that of a second objective on pairs of text if set."""

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from data.masking import IGNORED_LABEL, MaskedBatch

FLOATS = {"loss", "grad_norm", "pair_loss_sum"}  # sums of `StepSums` that are not integers


class MaskedLoss(NamedTuple):
    """Sums, not means, so that batches of different sizes can be added and divided by the number of labels once."""

    losses: torch.Tensor  # [n_masked] nats, 0 where the label is ignored
    loss_sum: torch.Tensor
    n_correct: torch.Tensor
    pair_loss_sum: torch.Tensor  # nats, over the pairs of the batch; 0 without pairs
    n_pairs_correct: torch.Tensor


class StepSums(NamedTuple):
    """Totals of a step for the training metrics. They stay on the device: reading them would synchronize."""

    loss: torch.Tensor  # nats, the mean over the labels of a step
    n_correct: torch.Tensor
    n_labels: torch.Tensor
    n_positions: torch.Tensor  # selected positions; those without a label are ignored
    grad_norm: torch.Tensor
    pair_loss_sum: torch.Tensor  # nats, over all pairs
    n_pairs_correct: torch.Tensor
    n_pairs: torch.Tensor
    n_steps: torch.Tensor  # 1 for a step, 0 if it was skipped or had no labels

    @classmethod
    def zeros(cls, device: torch.device) -> "StepSums":
        """All zero. Counts are integers, because float32 cannot count beyond 16,777,216."""
        dtypes = (torch.float32 if name in FLOATS else torch.int64 for name in cls._fields)
        return cls(*(torch.zeros((), device=device, dtype=dtype) for dtype in dtypes))


def masked_loss(model: nn.Module, batch: MaskedBatch) -> MaskedLoss:
    """The cross-entropy of a batch's labels, and how many of them are the model's most likely token."""
    if batch.pairs is None:
        positions = batch.positions
        if batch.is_even and getattr(model, "takes_positions_per_window", False):
            positions = positions.view(len(batch.inputs), -1)
        logits = model(batch.inputs, positions).float()  # [n_masked, n_tokens]
        pair_loss_sum, n_pairs_correct = logits.new_zeros(()), batch.labels.new_zeros(())
    else:
        logits, pair_logits = model.forward_pairs(batch.inputs, batch.positions, batch.pairs.segments)  # type: ignore[operator]
        pair_losses, correct = pair_outcomes(pair_logits, batch.pairs.labels)
        logits, pair_loss_sum, n_pairs_correct = logits.float(), pair_losses.sum(), correct.sum()
    losses = F.cross_entropy(logits, batch.labels, reduction="none", ignore_index=IGNORED_LABEL)
    return MaskedLoss(losses, losses.sum(), (logits.argmax(-1) == batch.labels).sum(), pair_loss_sum, n_pairs_correct)


def pair_outcomes(pair_logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The binary cross-entropy (nats) of pairs, and whether the more likely label is correct, both `[batch]`."""
    losses = F.binary_cross_entropy_with_logits(pair_logits.float(), labels.float(), reduction="none")
    return losses, (pair_logits > 0) == labels


def n_labels(batch: MaskedBatch) -> torch.Tensor:
    """The number of labels that count, as a tensor on the device: reading its value would wait for the device."""
    return (batch.labels != IGNORED_LABEL).sum()
