"""A second objective, on pairs of text: does B follow A (nsp), or are A and B in order (sop)? See
`data.windows.pairs`."""

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F

from data.masking import MaskedBatch
from data.windows import WindowBatch
from training.evaluation import CHARS_AT_ONCE, evaluating
from training.objective import MaskedObjective, Outcome, Sums, outcome_of


class PairObjective(MaskedObjective):
    """The masked objective, plus the binary cross-entropy of the pairs' labels."""

    def outcome(self, model: nn.Module, batch: MaskedBatch) -> Outcome:
        segments, labels = batch.further
        logits, pair_logits = model.forward_pairs(batch.inputs, batch.positions, segments)  # type: ignore[operator]
        masked = outcome_of(logits, batch.labels, self.loss_of)
        losses, correct = pair_outcomes(pair_logits, labels)
        return Outcome(
            masked.losses,
            masked.sums | {"pair_loss_sum": losses.sum(), "n_pairs_correct": correct.sum()},
        )

    def counts(self, batches: Sequence[MaskedBatch]) -> Sums:
        counts = super().counts(batches)
        n_pairs = sum(len(batch.inputs) for batch in batches)
        return counts | {"n_pairs": torch.full_like(counts["n_labels"], n_pairs)}

    def loss(self, sums: Sums, counts: Sums) -> torch.Tensor:
        return super().loss(sums, counts) + sums["pair_loss_sum"] / counts["n_pairs"]


def pair_outcomes(
    pair_logits: torch.Tensor, labels: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The binary cross-entropy (nats) of pairs, and whether the more likely label is correct, both
    `[batch]`."""
    losses = F.binary_cross_entropy_with_logits(
        pair_logits.float(), labels.float(), reduction="none"
    )
    return losses, (pair_logits > 0) == labels


def evaluate_pairs(model: nn.Module, windows: WindowBatch) -> tuple[float, float]:
    """Loss (nats) and accuracy on pairs of text, with no character masked."""
    outcomes = []
    n_at_once = max(1, CHARS_AT_ONCE // windows.tokens.shape[1])
    # its logits are not used
    any_position = torch.zeros(1, dtype=torch.int64, device=windows.tokens.device)
    parts = (windows.tokens, *windows.further)
    with evaluating(model, windows.tokens.device):
        for tokens, segments, labels in zip(
            *(part.split(n_at_once) for part in parts), strict=True
        ):
            _, pair_logits = model.forward_pairs(tokens, any_position, segments)  # type: ignore[operator]
            outcomes.append(pair_outcomes(pair_logits, labels))
    losses, correct = (torch.cat(parts) for parts in zip(*outcomes, strict=True))
    return losses.mean().item(), correct.float().mean().item()
