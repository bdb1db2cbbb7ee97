"""Measures of a trained model beyond the headline number. Losses are in nats per masked token, by
default a character.

Each measure is a dict with `n` (tokens predicted), `loss` and `accuracy`, which are None if `n` is
0.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from data.masking.words import WORD, cut
from data.protocol import N_MASKED, SEED, WINDOW_LEN, ValidationSet
from data.references.counting import count
from data.vocabulary import Vocabulary
from training.evaluation import masked_outcomes

Measure = dict[str, Any]
RATES = {
    "15%": 0.15,
    "20%": 0.20,
    "30%": 0.30,
    "40%": 0.40,
    "50%": 0.50,
    "uniform": None,
}
# the first that fits counts, for tokens by their `first_characters`
CLASSES: dict[str, Callable[[str], bool]] = {
    "lower case": str.islower,
    "capitals": str.isupper,
    "space": lambda c: c == " ",
    "newline": lambda c: c == "\n",
    "punctuation": lambda c: c.isprintable() and not c.isalnum() and c != " ",
    "other": lambda c: (
        True
    ),  # the rest: digits, letters without case, control characters
}
DISTANCES = ("1", "2", "3", "4 or more")
SPAN = 5  # characters
# `one_at_a_time` masks every eighth character of at most 64 windows
SINGLE_WINDOWS = 64
SINGLE_STEP = 8


def sweep_masks(n_windows: int, rate: float | None) -> torch.Tensor:
    """Masks for one masking rate, bool `[n_windows, 256]`, the same for every model.

    Each window has exactly round(rate * 256) masked positions. With `None`, each window draws its
    own count, uniformly from 1 to 255.
    """
    generator = np.random.Generator(np.random.PCG64([SEED, round(1000 * (rate or 0))]))
    ranks = ranks_of_random(generator, (n_windows, WINDOW_LEN))
    if rate is None:
        return torch.from_numpy(
            ranks < generator.integers(1, WINDOW_LEN, size=(n_windows, 1))
        )
    return torch.from_numpy(ranks < round(rate * WINDOW_LEN))


def ranks_of_random(
    generator: np.random.Generator, shape: tuple[int, int]
) -> np.ndarray:
    """The ranks of random numbers in each row: a random permutation."""
    return generator.random(shape).argsort(axis=1).argsort(axis=1)


def sweep(
    model: nn.Module, validation: ValidationSet, mask_token: int
) -> dict[str, Measure]:
    """The model at every masking rate."""
    masks = {
        name: sweep_masks(validation.n_windows, rate) for name, rate in RATES.items()
    }
    return {
        name: _masked(model, validation, masked, mask_token)
        for name, masked in masks.items()
    }


def counting_sweep(
    training: torch.Tensor, validation: ValidationSet, n_chars: int
) -> dict[str, Measure]:
    """The counting baseline at every masking rate, in one call because each call counts the
    training text again."""
    windows = validation.windows.cpu().numpy()
    masks = [sweep_masks(len(windows), rate).numpy() for rate in RATES.values()]
    repeated = np.tile(windows, (len(masks), 1))
    counts = count(training.cpu().numpy(), repeated, np.concatenate(masks), n_chars)
    sizes = [int(mask.sum()) for mask in masks]
    losses = torch.from_numpy(counts.losses).split(sizes)
    correct = torch.from_numpy(counts.correct).split(sizes)

    return dict(zip(RATES, map(_measure, losses, correct), strict=True))


def one_at_a_time(
    model: nn.Module, validation: ValidationSet, mask_token: int
) -> Measure:
    """Pseudo-log-likelihood (Salazar et al. 2020) per token of a fixed sample of the validation
    text.

    Each token is masked alone; all others are visible.
    """
    windows = evenly_spaced(validation.windows, SINGLE_WINDOWS)
    masked = torch.eye(windows.shape[1], dtype=torch.bool)[
        ::SINGLE_STEP
    ]  # [n_columns, 256]
    repeated = replace(validation, windows=windows.repeat_interleave(len(masked), 0))
    return _masked(model, repeated, masked.repeat(len(windows), 1), mask_token)


def evenly_spaced(windows: torch.Tensor, n: int) -> torch.Tensor:
    """`n` of `windows` `[n_windows, seq_len]`, or all of them if there are fewer."""
    last = len(windows) - 1
    kept = (
        torch.linspace(0, last, min(n, len(windows)), dtype=torch.float64)
        .round()
        .long()
    )
    return windows[kept.to(windows.device)]


def hard_masks(
    model: nn.Module, validation: ValidationSet, vocabulary: Vocabulary
) -> dict[str, Measure]:
    """The model with whole words masked, and with spans of five tokens masked.

    Each window has at most as many masked tokens as in the protocol.
    """
    words = word_masks(validation.windows.cpu(), vocabulary)
    masks = {"whole words": words, f"spans of {SPAN}": span_masks(validation.n_windows)}
    return {
        name: _masked(model, validation, m, vocabulary.mask_token)
        for name, m in masks.items()
    }


def word_masks(windows: torch.Tensor, vocabulary: Vocabulary) -> torch.Tensor:
    """Random whole words, as many as fit into the budget of N_MASKED tokens; bool `[n_windows,
    256]`."""
    generator = np.random.Generator(np.random.PCG64(SEED))
    masked = torch.zeros(windows.shape, dtype=torch.bool)
    for row, window in enumerate(windows):
        left = N_MASKED
        # The border of a window may cut a word, so words that touch it are left out.
        text, offsets = vocabulary.text_of(window)
        words = []
        end = 0
        for piece in cut(text):
            begin, end = end, end + len(piece)
            if WORD.match(piece) and begin > 0 and end < len(text):
                words.append((begin, end))

        if (
            offsets is not None
        ):  # the tokens of each word; a word may have none of its own
            spans = torch.searchsorted(
                offsets, torch.tensor(words, dtype=torch.int64)
            ).tolist()
            words = [(begin, end) for begin, end in spans if begin < end]

        for i in generator.permutation(len(words)):
            begin, end = words[i]
            if end - begin <= left:
                masked[row, begin:end] = True
                left -= end - begin

    return masked


def span_masks(n_windows: int) -> torch.Tensor:
    """Random spans of five tokens, each followed by a visible one, up to the budget; bool
    `[n_windows, 256]`."""
    generator = np.random.Generator(np.random.PCG64([SEED, SPAN]))
    n_slots = WINDOW_LEN // (SPAN + 1)
    ranks = ranks_of_random(generator, (n_windows, n_slots))
    slots = np.repeat(ranks < N_MASKED // SPAN, SPAN + 1, axis=1)
    slots[:, SPAN :: SPAN + 1] = False

    return torch.from_numpy(np.pad(slots, ((0, 0), (0, WINDOW_LEN - slots.shape[1]))))


def breakdown(
    outcomes: tuple[torch.Tensor, torch.Tensor],
    validation: ValidationSet,
    vocabulary: Vocabulary,
) -> dict[str, dict[str, Measure]]:
    """An evaluation's outcomes `by_class` of the masked token and `by_distance` to the nearest
    visible one."""
    losses, correct = outcomes
    masked = validation.masked.cpu()
    classes = [class_of(character) for character in first_characters(vocabulary)]
    class_numbers = torch.tensor(classes)[validation.windows.cpu()[masked]]
    distances = distance_to_visible(masked)[masked].clamp(max=len(DISTANCES))

    def table(names: Iterable[str], numbers: torch.Tensor) -> dict[str, Measure]:
        rows = {}
        for i, name in enumerate(names):
            rows[name] = _measure(losses[numbers == i], correct[numbers == i])
        return rows

    return {
        "by_class": table(CLASSES, class_numbers),
        "by_distance": table(DISTANCES, distances - 1),
    }


def class_of(character: str) -> int:
    """The number of the first of `CLASSES` that a character belongs to."""
    return [belongs(character) for belongs in CLASSES.values()].index(True)


def first_characters(vocabulary: Vocabulary) -> list[str]:
    """The character of each ordinary token that decides its class: the first that is not a space,
    if there is one."""
    if vocabulary.is_characters:
        return vocabulary.ordinary
    texts = [surface.decode(errors="ignore") for surface in vocabulary.surfaces]
    # a part of a character is among the others
    return [(text.strip() or text or "\0")[0] for text in texts]


def distance_to_visible(masked: torch.Tensor) -> torch.Tensor:
    """Distance to the nearest visible token of the window, `[n_windows, seq_len]`; 0 if visible
    itself."""
    columns = torch.arange(masked.shape[1])
    far = 2 * masked.shape[1]
    before = (
        columns.where(~masked, -far).cummax(1).values
    )  # the last visible column up to here
    after = columns.where(~masked, far).flip(1).cummin(1).values.flip(1)

    return torch.minimum(columns - before, after - columns)


def _masked(
    model: nn.Module, validation: ValidationSet, masked: torch.Tensor, mask_token: int
) -> Measure:
    masked = validation.without_unknown(masked)
    return _measure(*masked_outcomes(model, validation.windows, masked, mask_token))


def _measure(losses: torch.Tensor, correct: torch.Tensor) -> Measure:
    if not len(losses):
        return {"n": 0, "loss": None, "accuracy": None}
    return {
        "n": len(losses),
        "loss": losses.mean().item(),
        "accuracy": correct.double().mean().item(),
    }
