"""A second objective, on pairs of text: does B follow A (nsp), or are A and B in order (sop)? See
`data.windows.pairs`."""

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F

from data.batch import Batch
from data.windows import WindowBatch
from training.evaluation import CHARS_AT_ONCE, evaluating
from training.objective import MaskedObjective, Outcome, Sums, masks_of


class PairObjective(MaskedObjective):
    """The masked objective, plus the binary cross-entropy of the pairs' labels. Batches have the
    extras `segments` `[batch, seq_len]` and `pair_labels` `[batch]`."""

    def outcome(self, model: nn.Module, batch: Batch) -> Outcome:
        logits, pair_logits = model.forward_pairs(  # type: ignore[operator]
            batch.inputs, batch.positions, batch.extras["segments"], **masks_of(batch)
        )
        masked = self.outcome_of(logits, batch)
        losses, is_correct = pair_outcomes(pair_logits, batch.extras["pair_labels"])
        sums = {"pair_loss_sum": losses.sum(), "n_pairs_correct": is_correct.sum()}
        return Outcome(masked.losses, masked.sums | sums)

    def counts(self, batches: Sequence[Batch]) -> Sums:
        counts = super().counts(batches)
        n_pairs = sum(len(batch.inputs) for batch in batches)
        return counts | {"n_pairs": torch.full_like(counts["n_labels"], n_pairs)}

    def normalized(self, sums: Sums, counts: Sums) -> torch.Tensor:
        return (
            super().normalized(sums, counts) + sums["pair_loss_sum"] / counts["n_pairs"]
        )


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
    device = windows.tokens.device
    n_windows, seq_len = windows.tokens.shape
    n_at_once = max(1, CHARS_AT_ONCE // seq_len)
    # its logits are not used
    any_position = torch.zeros(1, dtype=torch.int64, device=device)
    all_pair_logits = []
    with evaluating(model, device):
        for begin in range(0, n_windows, n_at_once):
            part = slice(begin, begin + n_at_once)
            _, pair_logits = model.forward_pairs(  # type: ignore[operator]
                windows.tokens[part], any_position, windows.extras["segments"][part]
            )
            all_pair_logits.append(pair_logits)
    losses, is_correct = pair_outcomes(
        torch.cat(all_pair_logits), windows.extras["pair_labels"]
    )
    return losses.mean().item(), is_correct.float().mean().item()
