"""The headline number: the masked cross-entropy of the validation protocol, in nats a masked character."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from data.protocol import N_MASKED, ValidationSet
from data.windows import WindowBatch
from training.objective import pair_outcomes

CHARS_AT_ONCE = 16_384  # bounds the memory of an evaluation, whatever the window length


@dataclass(frozen=True)
class Evaluation:
    """What one evaluation by the protocol gives. Losses in nats a masked character."""

    loss: float
    loss_stderr: float  # over windows
    loss_at_seq_len: float  # the windows cut into pieces of the training length
    accuracy: float  # share of the masked characters whose most likely character is right
    window_losses: np.ndarray  # [n_windows], summed over each window's masked positions


def evaluate(model: nn.Module, validation: ValidationSet, *, mask_token: int, seq_len: int) -> Evaluation:
    """Evaluate by the protocol: every masked position is `[MASK]`, dropout is off, float32.

    `seq_len` is the training length that `loss_at_seq_len` cuts the windows to. Uses no random numbers, and
    leaves the model in the mode that it was in.
    """
    losses, correct = window_losses(model, validation.windows, validation.masked, mask_token)
    at_seq_len = losses
    if seq_len < validation.windows.shape[1]:
        pieces = zip(validation.windows.split(seq_len, 1), validation.masked.split(seq_len, 1), strict=True)
        cut = [window_losses(model, windows, masked, mask_token)[0] for windows, masked in pieces]
        at_seq_len = torch.stack(cut).sum(0)
    loss = losses / N_MASKED  # [n_windows], each a mean over the window's masked positions
    n = validation.n_windows
    return Evaluation(
        loss=loss.mean().item(),
        loss_stderr=(loss.std() / n**0.5).item() if n > 1 else float("nan"),
        loss_at_seq_len=(at_seq_len / N_MASKED).mean().item(),
        accuracy=correct.sum().item() / (N_MASKED * n),
        window_losses=losses.numpy(),
    )


@torch.no_grad()
def evaluate_pairs(model: nn.Module, windows: WindowBatch) -> tuple[float, float]:
    """Loss (nats) and accuracy of the second objective on pairs of text, with no character hidden."""
    assert windows.pairs is not None
    losses, correct = [], []
    was_training = model.training
    model.eval()
    rows = max(1, CHARS_AT_ONCE // windows.tokens.shape[1])
    nowhere = torch.zeros(1, dtype=torch.int64, device=windows.tokens.device)  # no characters are asked for
    parts = (windows.tokens, windows.pairs.segments, windows.pairs.labels)
    for tokens, segments, labels in zip(*(part.split(rows) for part in parts), strict=True):
        with torch.autocast(tokens.device.type, enabled=False):
            _, pair_logits = model.forward_pairs(tokens, nowhere, segments)  # type: ignore[operator]
        outcomes = pair_outcomes(pair_logits, labels)
        losses.append(outcomes[0])
        correct.append(outcomes[1])
    model.train(was_training)
    return torch.cat(losses).mean().item(), torch.cat(correct).float().mean().item()


def window_losses(
    model: nn.Module, windows: torch.Tensor, masked: torch.Tensor, mask_token: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Summed loss (nats) and number of right predictions of each window, both `[n_windows]` in float64."""
    losses, correct = masked_outcomes(model, windows, masked, mask_token)
    window = torch.nonzero(masked)[:, 0].cpu()
    zeros = torch.zeros(len(windows), dtype=torch.float64)
    return zeros.index_add(0, window, losses), zeros.index_add(0, window, correct.double())


@torch.no_grad()
def masked_outcomes(
    model: nn.Module, windows: torch.Tensor, masked: torch.Tensor, mask_token: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss (nats, float64) of each hidden character and whether the likeliest one is right, both `[n_masked]` on
    the CPU in the order of `masked.nonzero()`.

    `windows` `[n_windows, seq_len]` are the original ids; `masked`, of the same shape, says which are hidden.
    """
    losses, correct = [], []
    was_training = model.training
    model.eval()
    rows = max(1, CHARS_AT_ONCE // windows.shape[1])
    for tokens, hidden in zip(windows.split(rows), masked.split(rows), strict=True):
        positions = torch.nonzero(hidden.flatten()).flatten()
        with torch.autocast(tokens.device.type, enabled=False):
            logits = model(tokens.masked_fill(hidden, mask_token), positions).cpu()  # MPS knows no float64
        labels = tokens.flatten()[positions].cpu()
        losses.append(F.cross_entropy(logits.double(), labels, reduction="none"))
        correct.append(logits.argmax(-1) == labels)
    model.train(was_training)
    return torch.cat(losses), torch.cat(correct)


def pairs_row(
    model: nn.Module, validation: WindowBatch, name: str, loss_sum: float, n_correct: float, n_pairs: float
) -> dict[str, float]:
    """The second objective's entries of a row, `name` being nsp or sop; guessing is right half of the time.

    The sums are those of the training since the last row.
    """
    loss, accuracy = evaluate_pairs(model, validation)
    return {
        f"loss.{name}.train": loss_sum / n_pairs,
        f"accuracy.{name}.train": n_correct / n_pairs,
        f"loss.{name}.valid": loss,
        f"accuracy.{name}.valid": accuracy,
    }
