"""The validation loss: the masked cross-entropy of the validation protocol, in nats per masked
token."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from data.protocol import ValidationSet
from training.objective import Sums

CHARS_AT_ONCE = 4_096  # per pass, to fit the cache of a CPU
LOGITS_AT_ONCE = 65_536  # that become float64, for the same reason
Outcomes = tuple[torch.Tensor, torch.Tensor]
Measure = Callable[..., Outcomes]  # as `masked_outcomes`


@dataclass(frozen=True)
class Evaluation:
    """The result of one evaluation. Losses are in nats per masked token, by default a character."""

    loss: float
    loss_stderr: float  # over windows; nan for a single window
    loss_at_seq_len: float  # with the windows cut to the training length
    accuracy: float  # the share of masked tokens whose most likely token is correct
    window_losses: np.ndarray  # [n_windows], summed over each window's masked positions
    outcomes: Outcomes


@contextmanager
def evaluating(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Switches dropout, gradients and autocast off inside the context."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            yield
    finally:
        model.train(was_training)


def masked_outcomes(
    model: nn.Module,
    windows: torch.Tensor,
    masked: torch.Tensor,
    mask_token: int,
    attention_mask: torch.Tensor | None = None,
) -> Outcomes:
    """Loss (nats, float64) of each masked token, and whether the most likely one is correct.

    `windows` `[n_windows, seq_len]` are the original ids; `masked`, of the same shape, says which
    are masked, and `attention_mask` has the documents' numbers. Both results are `[n_masked]`, on
    the CPU, in the order of `masked.nonzero()`.
    """
    if not takes_documents(model):
        attention_mask = None
    losses = []
    correct = []
    n_at_once = max(1, CHARS_AT_ONCE // windows.shape[1])
    with evaluating(model, windows.device):
        for begin in range(0, len(windows), n_at_once):
            part = slice(begin, begin + n_at_once)
            tokens = windows[part]
            hidden = masked[part]
            positions = torch.nonzero(hidden.flatten()).flatten()
            inputs = tokens.masked_fill(hidden, mask_token)
            if attention_mask is None:
                logits = model(inputs, positions)
            else:
                logits = model(inputs, positions, attention_mask[part])
            labels = tokens.flatten()[positions].cpu()
            # MPS has no float64
            logits = logits.cpu()
            n_rows = max(1, LOGITS_AT_ONCE // logits.shape[-1])
            for some, wanted in zip(
                logits.split(n_rows), labels.split(n_rows), strict=True
            ):
                losses.append(F.cross_entropy(some.double(), wanted, reduction="none"))
                correct.append(some.argmax(-1) == wanted)
    return torch.cat(losses), torch.cat(correct)


def takes_documents(model: nn.Module) -> bool:
    """Whether a model takes the documents' numbers. A model of a user may not: it sees all
    documents of a window."""
    return "attention_mask" in signature(getattr(model, "forward", model)).parameters


def evaluate(
    model: nn.Module,
    validation: ValidationSet,
    mask_token: int,
    seq_len: int,
    outcomes_of: Measure = masked_outcomes,
) -> Evaluation:
    """Evaluate by the protocol: every masked position shows `[MASK]`, dropout is off, arithmetic is
    float32.

    `seq_len` is the training length for `loss_at_seq_len`. Uses no random numbers.
    """
    windows = validation.windows
    masked = validation.masked
    numbers = validation.attention_mask
    outcomes = outcomes_of(model, windows, masked, mask_token, numbers)
    losses = per_window(outcomes[0], masked)
    n = validation.n_windows
    n_masked = validation.n_masked
    # [n_windows]; their mean is the loss per masked position, also if windows have fewer
    per_token = losses / n_masked
    loss = per_token.mean().item()
    excess = per_token - loss * (masked.sum(1).cpu() / n_masked - 1)
    loss_at_seq_len = loss
    if seq_len < windows.shape[1]:
        all_losses = []
        for begin in range(0, windows.shape[1], seq_len):
            piece = slice(begin, begin + seq_len)
            its_numbers = None if numbers is None else numbers[:, piece]
            token_losses, _ = outcomes_of(
                model, windows[:, piece], masked[:, piece], mask_token, its_numbers
            )
            all_losses.append(token_losses)
        loss_at_seq_len = torch.cat(all_losses).mean().item()
    return Evaluation(
        loss=loss,
        loss_stderr=(excess.std() / n**0.5).item() if n > 1 else math.nan,
        loss_at_seq_len=loss_at_seq_len,
        accuracy=outcomes[1].double().mean().item(),
        window_losses=losses.numpy(),
        outcomes=outcomes,
    )


def per_window(losses: torch.Tensor, masked: torch.Tensor) -> torch.Tensor:
    """The summed loss (nats) of each window, `[n_windows]`, from those of the masked tokens."""
    window = torch.nonzero(masked)[:, 0].cpu()
    return losses.new_zeros(len(masked)).index_add(0, window, losses)


@dataclass(frozen=True)
class Evaluator:
    """Evaluates a model by the protocol, and builds the rows of metrics.jsonl."""

    model: nn.Module
    validation: ValidationSet
    mask_token: int
    corpus: str  # its name
    outcomes_of: Measure = masked_outcomes

    def row(
        self, facts: Mapping[str, Any], before: Mapping[str, Any], sums: Sums
    ) -> tuple[dict[str, Any], Evaluation]:
        """A row, and the evaluation in it. `facts` holds its step, chars, seconds and settings,
        `before` the chars and seconds of the last evaluation, `sums` those of the steps since then.
        """
        evaluation = evaluate(
            self.model,
            self.validation,
            self.mask_token,
            facts["seq_len"],
            self.outcomes_of,
        )
        chars = facts["chars"] - before["chars"]
        seconds = facts["seconds"] - before["seconds"]
        totals = defaultdict(float)  # empty without steps
        totals |= {name: float(total) for name, total in sums.items()}
        n_labels = totals["n_labels"] or math.nan  # nan: no step had labels
        n_steps = totals["n_steps"] or math.nan
        row = {
            **facts,
            "corpus": self.corpus,
            "loss.train": totals["loss"] / n_steps,
            "accuracy.train": totals["n_correct"] / n_labels,
            "loss.valid": evaluation.loss,
            "loss.valid_stderr": evaluation.loss_stderr,
            "loss.valid_at_seq_len": evaluation.loss_at_seq_len,
            "accuracy.valid": evaluation.accuracy,
            "grad_norm": totals["grad_norm"] / n_steps,
            "chars_per_second": round(chars / max(seconds, 1e-9), 1),
        }
        if totals["n_labels"] < totals["n_positions"]:
            row["ignored_labels"] = 1 - totals["n_labels"] / totals["n_positions"]
        return row, evaluation
