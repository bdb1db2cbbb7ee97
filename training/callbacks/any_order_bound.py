"""Adds the any-order bound to each row: how well the model writes."""

import torch
from torch import nn

from data.bound_masks import bound_masks
from training.callbacks.callback import Callback, Row
from training.evaluation import Evaluation, Measure, masked_outcomes, per_window
from training.loop import Trainer


class AnyOrderBound(Callback):
    """Adds `loss.bound` to each row, which then decides which weights are the best."""

    name = "bound"  # tells a checkpoint whose best loss is a bound

    def measured(self, trainer: Trainer, row: Row, evaluation: Evaluation) -> None:
        evaluator = trainer.evaluator
        bound = any_order_bound(
            trainer.model,
            evaluator.validation.windows,
            bound_masks(evaluator.validation, rounds=1),
            evaluator.mask_token,
            evaluator.validation.attention_mask,
            evaluator.outcomes_of,
        )
        row["loss.bound"] = bound.mean().item()


def any_order_bound(
    model: nn.Module,
    windows: torch.Tensor,
    masks: torch.Tensor,
    mask_token: int,
    attention_mask: torch.Tensor | None = None,
    outcomes_of: Measure = masked_outcomes,
) -> torch.Tensor:
    """How well a model that writes in random order predicts windows: `[n_windows]` nats per token,
    an upper bound.

    It is estimated with `masks` `[n_rounds, n_windows, seq_len]` (see `data.bound_masks`) of the
    true `windows` `[n_windows, seq_len]`, with the documents' numbers in `attention_mask`. If L
    tokens are written one at a time in random order, a window x has at least the probability P(x)
    with

        -log P(x) <= mean over orders o of the sum of -log p(x_o(i) | x_o(1) ... x_o(i-1)) over i
                   = L * mean cross-entropy at n masked positions, n uniform in 1 ... L, the positions random

    (Uria et al. 2014; Hoogeboom et al. 2022). It is also the bound of masked diffusion (Sahoo et
    al. 2024). The mean over exactly n positions varies less than a sum over positions masked
    independently, divided by their expected number (Nie et al. 2025).
    """
    repeated = windows.repeat(len(masks), 1)
    masked = masks.flatten(0, 1)
    if attention_mask is not None:
        attention_mask = attention_mask.repeat(len(masks), 1)
    token_losses, _ = outcomes_of(model, repeated, masked, mask_token, attention_mask)
    losses = per_window(token_losses, masked)
    per_token = losses / masked.sum(1).clamp(min=1).cpu()
    return per_token.view(len(masks), -1).mean(0)
