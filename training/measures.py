"""What a trained model can do, measured in more ways than the headline number."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from data.counting import count
from data.masking.words import WORD
from data.protocol import N_MASKED, SEED, WINDOW_LEN, ValidationSet
from data.vocabulary import Vocabulary
from training.evaluation import masked_outcomes

RATES = {"15%": 0.15, "20%": 0.20, "30%": 0.30, "40%": 0.40, "50%": 0.50, "uniform": None}
CLASSES: dict[str, Callable[[str], bool]] = {
    "lower case": str.islower,
    "capitals": str.isupper,
    "space": lambda c: c == " ",
    "newline": lambda c: c == "\n",
    "punctuation": lambda c: c.isprintable() and not c.isalnum() and c != " ",
}
OTHER = "other"  # digits, letters without case, control characters
FARTHEST = 4  # distances from here on are one class
SPAN = 5  # characters
SINGLE_WINDOWS, SINGLE_STEP = 64, 8  # one character at a time: so many windows, every eighth character of each


def sweep_masks(n_windows: int, rate: float | None) -> torch.Tensor:
    """Masks for one masking rate, bool `[n_windows, 256]`, the same for every model.

    Exactly round(rate * 256) positions in each window; with `None` a count drawn for each window alone, every one
    from 1 to 255 as likely.
    """
    generator = np.random.Generator(np.random.PCG64([SEED, round(1000 * (rate or 0))]))
    order = generator.random((n_windows, WINDOW_LEN)).argsort(axis=1).argsort(axis=1)
    if rate is None:
        counts = generator.integers(1, WINDOW_LEN, size=(n_windows, 1))
    else:
        counts = np.full((n_windows, 1), round(rate * WINDOW_LEN))
    return torch.from_numpy(order < counts)


def sweep(model: nn.Module, validation: ValidationSet, mask_token: int) -> dict[str, dict[str, float]]:
    """Loss (nats) and accuracy at every masking rate."""
    results = {}
    for name, rate in RATES.items():
        masked = sweep_masks(validation.n_windows, rate).to(validation.windows.device)
        losses, correct = masked_outcomes(model, validation.windows, masked, mask_token)
        results[name] = {"loss": losses.mean().item(), "accuracy": correct.double().mean().item()}
    return results


def counting_sweep(training: torch.Tensor, validation: ValidationSet, n_chars: int) -> dict[str, dict[str, float]]:
    """What counting reaches at every masking rate: all in one call, since each call counts the text anew."""
    windows = validation.windows.cpu().numpy()
    masks = [sweep_masks(len(windows), rate).numpy() for rate in RATES.values()]
    counts = count(training.cpu().numpy(), np.concatenate([windows] * len(masks)), np.concatenate(masks), n_chars)
    ends = np.cumsum([mask.sum() for mask in masks])[:-1]
    parts = zip(RATES, np.split(counts.losses, ends), np.split(counts.correct, ends), strict=True)
    return {name: {"loss": float(loss.mean()), "accuracy": float(right.mean())} for name, loss, right in parts}


def one_at_a_time(model: nn.Module, validation: ValidationSet, mask_token: int) -> dict[str, float]:
    """Pseudo-log-likelihood (Salazar et al. 2020): each character hidden alone, all others visible. In nats a
    character, over a fixed sample of the validation text."""
    spaced = np.linspace(0, validation.n_windows - 1, min(SINGLE_WINDOWS, validation.n_windows)).round()
    windows = validation.windows[torch.from_numpy(spaced.astype(np.int64)).to(validation.windows.device)]
    offsets = torch.arange(0, windows.shape[1], SINGLE_STEP, device=windows.device)
    masked = torch.zeros(len(offsets), windows.shape[1], dtype=torch.bool, device=windows.device)
    masked[torch.arange(len(offsets)), offsets] = True
    losses, correct = masked_outcomes(
        model, windows.repeat_interleave(len(offsets), 0), masked.repeat(len(windows), 1), mask_token
    )
    return {"loss": losses.mean().item(), "accuracy": correct.double().mean().item(), "characters": len(losses)}


def hard_masks(model: nn.Module, validation: ValidationSet, vocabulary: Vocabulary) -> dict[str, dict[str, float]]:
    """Loss (nats) and accuracy where more than single characters are hidden, up to the protocol's budget a window:
    whole words, and spans of five characters."""
    masks = {
        "whole words": word_masks(validation.windows.cpu(), vocabulary),
        f"spans of {SPAN}": span_masks(validation.n_windows),
    }
    results = {}
    for name, masked in masks.items():
        losses, correct = masked_outcomes(
            model, validation.windows, masked.to(validation.windows.device), vocabulary.mask_token
        )
        results[name] = {"loss": losses.mean().item(), "accuracy": correct.double().mean().item()}
    return results


def word_masks(windows: torch.Tensor, vocabulary: Vocabulary) -> torch.Tensor:
    """Words drawn at random, whole, until none fits into the budget of N_MASKED any more; bool `[n_windows, 256]`."""
    generator = np.random.Generator(np.random.PCG64(SEED))
    masked = torch.zeros(windows.shape, dtype=torch.bool)
    for row, window in enumerate(windows):
        left = N_MASKED
        # A word at the border of a window may be cut: it is not whole.
        words = [m.span() for m in WORD.finditer(vocabulary.decode(window)) if m.start() > 0 and m.end() < WINDOW_LEN]
        for i in generator.permutation(len(words)):
            begin, end = words[i]
            if end - begin <= left:
                masked[row, begin:end] = True
                left -= end - begin
    return masked


def span_masks(n_windows: int) -> torch.Tensor:
    """Spans of five characters with a visible one after each, as many as the budget has; bool `[n_windows, 256]`."""
    generator = np.random.Generator(np.random.PCG64([SEED, SPAN]))
    n_slots = WINDOW_LEN // (SPAN + 1)
    chosen = generator.random((n_windows, n_slots)).argsort(axis=1).argsort(axis=1) < N_MASKED // SPAN
    slots = np.concatenate([np.repeat(chosen[:, :, None], SPAN, 2), np.zeros((n_windows, n_slots, 1), bool)], axis=2)
    masked = torch.zeros(n_windows, WINDOW_LEN, dtype=torch.bool)
    masked[:, : n_slots * (SPAN + 1)] = torch.from_numpy(slots.reshape(n_windows, -1))
    return masked


def breakdown(
    model: nn.Module, validation: ValidationSet, vocabulary: Vocabulary
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """Accuracy and loss by the protocol, by the class of the hidden character and by its distance to the nearest
    visible one."""
    losses, correct = masked_outcomes(model, validation.windows, validation.masked, vocabulary.mask_token)
    labels = validation.windows[validation.masked].cpu()
    class_of = [next((name for name, belongs in CLASSES.items() if belongs(c)), OTHER) for c in vocabulary.characters]
    by_class = {}
    for name in (*CLASSES, OTHER):
        ids = [i for i, its_class in enumerate(class_of) if its_class == name]
        by_class[name] = _share(losses, correct, torch.isin(labels, torch.tensor(ids, dtype=labels.dtype)))
    distances = distance_to_visible(validation.masked.cpu())[validation.masked.cpu()]
    by_distance = {
        f"{distance}{' or more' if distance == FARTHEST else ''}": _share(
            losses, correct, distances.clamp(max=FARTHEST) == distance
        )
        for distance in range(1, FARTHEST + 1)
    }
    return by_class, by_distance


def distance_to_visible(masked: torch.Tensor) -> torch.Tensor:
    """How far the nearest visible character of the window is, `[n_windows, seq_len]`; 0 where it is visible itself."""
    seq_len = masked.shape[1]
    distance = torch.full(masked.shape, seq_len)
    distance[~masked] = 0
    for _ in range(seq_len):  # each round carries the distance one place on; few rounds are needed
        nearer = distance.clone()
        nearer[:, 1:] = torch.minimum(nearer[:, 1:], distance[:, :-1] + 1)
        nearer[:, :-1] = torch.minimum(nearer[:, :-1], distance[:, 1:] + 1)
        if torch.equal(nearer, distance):
            break
        distance = nearer
    return distance


def _share(losses: torch.Tensor, correct: torch.Tensor, chosen: torch.Tensor) -> dict[str, Any]:
    n = int(chosen.sum())
    if n == 0:
        return {"n": 0, "loss": None, "accuracy": None}
    return {"n": n, "loss": losses[chosen].mean().item(), "accuracy": correct[chosen].double().mean().item()}
