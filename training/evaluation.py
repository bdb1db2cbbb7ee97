"""The headline number: the masked cross-entropy of the validation protocol, in nats per masked token."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from data.protocol import ValidationSet
from data.windows import WindowBatch
from distributed.processes import SINGLE, Processes
from distributed.sharding import whole
from training.objective import pair_outcomes

CHARS_AT_ONCE = 4_096  # per pass, to fit the cache of a CPU


@dataclass(frozen=True)
class Evaluation:
    """The result of one evaluation. Losses are in nats per masked token, by default a character."""

    loss: float
    loss_stderr: float  # over windows; nan for a single window
    loss_at_seq_len: float  # with the windows cut to the training length
    accuracy: float  # the share of masked tokens whose most likely token is correct
    per_character: float | None  # the summed loss per character of the masked tokens; None if tokens are characters
    window_losses: np.ndarray  # [n_windows], summed over each window's masked positions
    outcomes: tuple[torch.Tensor, torch.Tensor]  # those of `masked_outcomes`


def evaluate(
    model: nn.Module, validation: ValidationSet, *, mask_token: int, seq_len: int, processes: Processes = SINGLE
) -> Evaluation:
    """Evaluate by the protocol: every masked position shows `[MASK]`, dropout is off, arithmetic is float32.

    `seq_len` is the training length for `loss_at_seq_len`. Uses no random numbers, and leaves the model in its mode.
    Each of several processes evaluates a share of the windows; all return the same result.
    """
    outcomes = masked_outcomes(model, validation.windows, validation.masked, mask_token, processes)
    losses, correct = per_window(outcomes, validation.masked)
    at_seq_len = losses
    if seq_len < validation.windows.shape[1]:
        pieces = zip(validation.windows.split(seq_len, 1), validation.masked.split(seq_len, 1), strict=True)
        cut = [per_window(masked_outcomes(model, *piece, mask_token, processes), piece[1])[0] for piece in pieces]
        at_seq_len = torch.stack(cut).sum(0)
    n, n_masked = validation.n_windows, validation.n_masked
    loss = losses / n_masked  # [n_windows], each a mean over the window's masked positions
    return Evaluation(
        loss=loss.mean().item(),
        loss_stderr=(loss.std() / n**0.5).item() if n > 1 else math.nan,
        loss_at_seq_len=(at_seq_len / n_masked).mean().item(),
        accuracy=correct.sum().item() / (n_masked * n),
        per_character=losses.sum().item() / n_chars if (n_chars := masked_chars(validation)) else None,
        window_losses=losses.numpy(),
        outcomes=outcomes,
    )


def masked_chars(validation: ValidationSet) -> int:
    """The number of characters that begin in the masked tokens; 0 if tokens are characters, or if there are none."""
    if validation.lengths is None:
        return 0
    return int(validation.lengths[validation.windows[validation.masked].cpu()].sum())


def per_window(outcomes: tuple[torch.Tensor, torch.Tensor], masked: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Summed loss (nats) and number of correct predictions of each window, both `[n_windows]` in float64."""
    losses, correct = outcomes
    window = torch.nonzero(masked)[:, 0].cpu()
    zeros = torch.zeros(len(masked), dtype=torch.float64)
    return zeros.index_add(0, window, losses), zeros.index_add(0, window, correct.double())


@torch.no_grad()
def masked_outcomes(
    model: nn.Module,
    windows: torch.Tensor,
    masked: torch.Tensor,
    mask_token: int,
    processes: Processes = SINGLE,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss (nats, float64) of each masked character, and whether the most likely one is correct.

    `windows` `[n_windows, seq_len]` are the original ids; `masked`, of the same shape, says which are masked. Both
    results are `[n_masked]`, on the CPU, in the order of `masked.nonzero()`.
    """
    was_training = model.training
    model.eval()
    rows = max(1, CHARS_AT_ONCE // windows.shape[1])
    passes = list(zip(windows.split(rows), masked.split(rows), strict=True))
    ends = torch.tensor([int(hidden.sum()) for _, hidden in passes]).cumsum(0).tolist()
    results = torch.zeros(ends[-1], 2, dtype=torch.float64)
    # Every process makes the same number of passes, because a sharded model is gathered in each.
    for first in range(0, len(passes), processes.n):
        i = first + processes.rank
        tokens, hidden = passes[min(i, len(passes) - 1)]
        positions = torch.nonzero(hidden.flatten()).flatten()
        with torch.autocast(tokens.device.type, enabled=False):
            logits = model(tokens.masked_fill(hidden, mask_token), positions).cpu()  # MPS has no float64
        if i < len(passes):
            labels = tokens.flatten()[positions].cpu()
            part = results[ends[i] - len(labels) : ends[i]]
            part[:, 0] = F.cross_entropy(logits.double(), labels, reduction="none")
            part[:, 1] = logits.argmax(-1) == labels
    model.train(was_training)
    processes.sum(results)
    return results[:, 0], results[:, 1] > 0


def any_order_bound(
    model: nn.Module, windows: torch.Tensor, masks: torch.Tensor, mask_token: int, processes: Processes = SINGLE
) -> torch.Tensor:
    """How well a model that writes in random order predicts windows: `[n_windows]` nats per token, an upper bound.

    It is estimated with `masks` `[n_rounds, n_windows, seq_len]` (see `data.protocol.bound_masks`) of the true
    `windows` `[n_windows, seq_len]`. If L tokens are written one at a time in random order, a window x has at least the
    probability P(x) with

        -log P(x) <= mean over orders o of the sum of -log p(x_o(i) | x_o(1) ... x_o(i-1)) over i
                   = L * mean cross-entropy at n masked positions, n uniform in 1 ... L, the positions random

    (Uria et al. 2014; Hoogeboom et al. 2022). It is also the bound of masked diffusion (Sahoo et al. 2024). The mean
    over exactly n positions varies less than a sum over positions masked independently, divided by their expected
    number (Nie et al. 2025).
    """
    repeated, masked = windows.repeat(len(masks), 1), masks.flatten(0, 1)
    losses, _ = per_window(masked_outcomes(model, repeated, masked, mask_token, processes), masked)
    return (losses / masked.sum(1).clamp(min=1).cpu()).view(len(masks), -1).mean(0)


@torch.no_grad()
def evaluate_pairs(model: nn.Module, windows: WindowBatch) -> tuple[float, float]:
    """Loss (nats) and accuracy of the second objective on pairs of text, with no character masked."""
    assert windows.pairs is not None
    losses, correct = [], []
    was_training = model.training
    model.eval()
    rows = max(1, CHARS_AT_ONCE // windows.tokens.shape[1])
    any_position = torch.zeros(1, dtype=torch.int64, device=windows.tokens.device)  # its logits are not used
    parts = (windows.tokens, windows.pairs.segments, windows.pairs.labels)
    for tokens, segments, labels in zip(*(part.split(rows) for part in parts), strict=True):
        with torch.autocast(tokens.device.type, enabled=False):
            _, pair_logits = model.forward_pairs(tokens, any_position, segments)  # type: ignore[operator]
        outcomes = pair_outcomes(pair_logits, labels)
        losses.append(outcomes[0])
        correct.append(outcomes[1])
    model.train(was_training)
    return torch.cat(losses).mean().item(), torch.cat(correct).float().mean().item()


def per_character(loss: float) -> dict[str, float]:
    """The entries of a row that compare runs with different tokens, from the loss in nats per character."""
    return {"loss.valid_per_character": loss, "bits_per_character": loss / math.log(2)}


@torch.no_grad()
def weight_norm(model: nn.Module) -> float:
    """The root mean square of all weights except tables: one number that shows whether they grow."""
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.EmbeddingBag)}
    weights = [weight for weight in model.parameters() if id(weight) not in tables]
    squares = torch.stack([whole(weight.float().square().sum()) for weight in weights]).sum()
    return (squares / sum(weight.numel() for weight in weights)).sqrt().item()
