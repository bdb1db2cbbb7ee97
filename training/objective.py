"""The objective of training: by default, the cross-entropy over masked positions."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._pytree import tree_map

from data.batch import IGNORED_LABEL, Batch

# scalars by name; they stay on the device, because reading them would synchronize
Sums = dict[str, torch.Tensor]
Losses = list[torch.Tensor]  # in the shape of the positions, for each batch of a step
# from logits [n, n_tokens] (float32) and labels [n] to the loss of each position, [n]
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Outcome(NamedTuple):
    """A model's result on a batch. Sums, not means, so that batches can be added and divided by
    their labels once."""

    losses: torch.Tensor  # in the shape of the positions, 0 where the label is ignored
    sums: Sums

    def detached(self) -> "Outcome":
        """The same without the graph of gradients."""
        return tree_map(torch.Tensor.detach, self)


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits, labels, reduction="none")


class MaskedObjective:
    """Predict the original characters at the masked positions (Devlin et al. 2018)."""

    def __init__(self, loss: Loss = cross_entropy):
        self.loss = loss

    def outcome(self, model: nn.Module, batch: Batch) -> Outcome:
        """The losses of a batch, their sum, and how many labels are the model's most likely token."""
        return self.outcome_of(
            model(batch.inputs, batch.positions, **masks_of(batch)), batch
        )

    def outcome_of(self, logits: torch.Tensor, batch: Batch) -> Outcome:
        """The outcome for `logits` `[*positions.shape, n_tokens]`."""
        losses, n_correct = self.scored(logits.flatten(0, -2), batch.labels.flatten())
        return Outcome(
            losses.view_as(batch.labels),
            {"loss_sum": losses.sum(), "n_correct": n_correct},
        )

    def scored(
        self, logits: torch.Tensor, labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The loss of each position, 0 where the label is ignored, and how many labels are the most
        likely token, for `logits` `[n, n_tokens]` and `labels` `[n]`."""
        logits = logits.float()
        is_counted = labels != IGNORED_LABEL
        losses = self.loss(logits, torch.where(is_counted, labels, 0))
        losses = torch.where(is_counted, losses, 0.0)
        return losses, (logits.argmax(-1) == labels).sum()

    def counts(self, batches: Sequence[Batch]) -> Sums:
        """The numbers that the sums over the batches of a step are divided by."""
        labels = torch.cat([batch.labels.flatten() for batch in batches])
        # every label has the same weight, whichever batch it is in
        n_labels = (labels != IGNORED_LABEL).sum()
        n_positions = torch.zeros_like(n_labels)
        for batch in batches:
            n_positions += n_positions_in(batch)
        return {"n_labels": n_labels, "n_positions": n_positions}

    def normalized(self, sums: Sums, counts: Sums) -> torch.Tensor:
        """A batch's share of the loss of a step, from the `sums` of the batch and the `counts` of
        the step."""
        return sums["loss_sum"] / counts["n_labels"].clamp(min=1)


def n_positions_in(batch: Batch) -> torch.Tensor | int:
    """How many labels a batch has at least if any token may be masked: as many as positions, or
    fewer in proportion to the padding of its windows."""
    n = batch.positions.numel()
    if batch.attention_mask is None:
        return n
    shares = (batch.attention_mask != 0).float().mean(1)
    return (shares * (n / len(shares))).floor().long().sum()


def masks_of(batch: Batch) -> dict[str, torch.Tensor]:
    """The attention mask and the documents' begins as arguments for the model, if the batch has
    them: a model that has no such argument can train on batches without them."""
    masks = {"attention_mask": batch.attention_mask, "begins": batch.begins}
    return {name: mask for name, mask in masks.items() if mask is not None}
