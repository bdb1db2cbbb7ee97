"""What is minimised: the cross-entropy over masked positions."""

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from data.masking import IGNORED_LABEL, MaskedBatch


class MaskedLoss(NamedTuple):
    """Sums, not means: batches of different size are added before anything is divided by the count of labels."""

    losses: torch.Tensor  # [n_masked] nats, 0 where the label is ignored
    loss_sum: torch.Tensor
    n_correct: torch.Tensor


def masked_loss(model: nn.Module, batch: MaskedBatch) -> MaskedLoss:
    """The cross-entropy of a batch's labels, and how many are the model's most likely token."""
    logits = model(batch.inputs, batch.positions).float()
    losses = F.cross_entropy(logits, batch.labels, reduction="none", ignore_index=IGNORED_LABEL)
    return MaskedLoss(losses, losses.sum(), (logits.argmax(-1) == batch.labels).sum())


def n_labels(batch: MaskedBatch) -> torch.Tensor:
    """How many labels of a batch count, as a tensor on the device: reading it back would wait for the device."""
    return (batch.labels != IGNORED_LABEL).sum()
