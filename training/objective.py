"""The objective of training: the cross-entropy over masked positions."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from data.masking import IGNORED_LABEL, MaskedBatch

# scalars by name; they stay on the device, because reading them would synchronize
Sums = dict[str, torch.Tensor]
Losses = list[torch.Tensor]  # [n_masked] nats, for each batch of a step


# from logits `[n, n_tokens]` and labels `[n]` to losses `[n]`, in nats; 0 where a label is ignored
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Outcome(NamedTuple):
    """A model's result on a batch. Sums, not means, so that batches can be added and divided by
    their labels once."""

    losses: torch.Tensor  # [n_masked] nats, 0 where the label is ignored
    sums: Sums

    def detached(self) -> "Outcome":
        """The same without the graph of gradients."""
        return Outcome(
            self.losses.detach(), {name: total.detach() for name, total in self.sums.items()}
        )


class MaskedObjective:
    """Predict the original characters at the masked positions (Devlin et al. 2018)."""

    def __init__(self, loss_of: "Loss | None" = None):
        self.loss_of = loss_of or cross_entropy

    def outcome(self, model: nn.Module, batch: MaskedBatch) -> Outcome:
        """The losses of a batch, their sum, and how many labels are the model's most likely token."""
        positions = batch.positions
        if batch.is_even and getattr(model, "takes_positions_per_window", False):
            positions = positions.view(len(batch.inputs), -1)
        return outcome_of(model(batch.inputs, positions), batch.labels, self.loss_of)

    def counts(self, batches: Sequence[MaskedBatch]) -> Sums:
        """The numbers that the sums over the batches of a step are divided by."""
        n_labels = torch.stack([(batch.labels != IGNORED_LABEL).sum() for batch in batches]).sum()
        return {
            "n_labels": n_labels,  # every label has the same weight, whichever batch it is in
            "n_positions": torch.full_like(
                n_labels, sum(len(batch.positions) for batch in batches)
            ),
        }

    def loss(self, sums: Sums, counts: Sums) -> torch.Tensor:
        """A batch's share of the loss of a step, from the `sums` of the batch and the `counts` of
        the step."""
        return sums["loss_sum"] / counts["n_labels"].clamp(min=1)


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits, labels, reduction="none", ignore_index=IGNORED_LABEL)


def outcome_of(
    logits: torch.Tensor, labels: torch.Tensor, loss_of: Loss = cross_entropy
) -> Outcome:
    """The losses of `logits` `[n_masked, n_tokens]` at the `labels` `[n_masked]` that count."""
    logits = logits.float()
    losses = loss_of(logits, labels)
    return Outcome(
        losses, {"loss_sum": losses.sum(), "n_correct": (logits.argmax(-1) == labels).sum()}
    )
