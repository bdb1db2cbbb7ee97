"""Measures of a trained model beyond the headline number. Losses are in nats per masked token, by
default a character.

Each measure is a dict with `n` (tokens predicted), `loss` and `accuracy`, which are None if `n` is
0.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import nn

from data.masking.words import WORD, cut
from data.protocol import (
    N_MASKED,
    SEED,
    WINDOW_LEN,
    ValidationSet,
    evenly_spaced,
    ranks,
)
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


def sweep_masks(validation: ValidationSet, rate: float | None) -> torch.Tensor:
    """Masks for one masking rate, bool `[n_windows, 256]`, the same for every model.

    Each window has exactly round(rate * n) masked positions, where n is the number of tokens that
    masks are drawn from: 256 in one text. With `None`, each window draws its own rate, uniformly
    from 1 / 256 to 255 / 256.
    """
    generator = np.random.Generator(np.random.PCG64([SEED, round(1000 * (rate or 0))]))
    drawable = validation.drawable
    order = ranks(generator, drawable)
    rates = np.full((len(order), 1), rate)
    if rate is None:
        rates = generator.integers(1, WINDOW_LEN, size=(len(order), 1)) / WINDOW_LEN
    counts = np.rint(rates * drawable.sum(1, keepdims=True))
    return validation.only_maskable(torch.from_numpy(order < counts))


def sweep(
    model: nn.Module, validation: ValidationSet, mask_token: int
) -> dict[str, Measure]:
    """The model at every masking rate."""
    return {
        name: _masked(model, validation, sweep_masks(validation, rate), mask_token)
        for name, rate in RATES.items()
    }


def counting_sweep(
    training: torch.Tensor, validation: ValidationSet, n_chars: int
) -> dict[str, Measure]:
    """The counting baseline at every masking rate, in one call because each call counts the
    training text again."""
    n = len(RATES)
    masks = [sweep_masks(validation, rate).cpu().numpy() for rate in RATES.values()]
    numbers = validation.attention_mask
    counts = count(
        training.cpu().numpy(),
        np.tile(validation.windows.cpu().numpy(), (n, 1)),
        np.concatenate(masks),
        n_chars,
        None if numbers is None else np.tile(numbers.cpu().numpy(), (n, 1)),
    )
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
    rows = evenly_spaced(validation.n_windows, SINGLE_WINDOWS)
    # [n_columns, 256]
    masked = torch.eye(validation.windows.shape[1], dtype=torch.bool)[::SINGLE_STEP]
    repeated = validation.take(rows.repeat_interleave(len(masked)))
    return _masked(model, repeated, masked.repeat(len(rows), 1), mask_token)


def hard_masks(
    model: nn.Module, validation: ValidationSet, vocabulary: Vocabulary
) -> dict[str, Measure]:
    """The model with whole words masked, and with spans of five tokens masked.

    Each window has at most as many masked tokens as in the protocol.
    """
    words = word_masks(validation, vocabulary)
    masks = {"whole words": words, f"spans of {SPAN}": span_masks(validation)}
    return {
        name: _masked(model, validation, m, vocabulary.mask_token)
        for name, m in masks.items()
    }


def word_masks(validation: ValidationSet, vocabulary: Vocabulary) -> torch.Tensor:
    """Random whole words, as many as fit into the budget of N_MASKED tokens; bool `[n_windows,
    256]`."""
    generator = np.random.Generator(np.random.PCG64(SEED))
    windows = validation.windows.cpu()
    masked = torch.zeros(windows.shape, dtype=torch.bool)
    for row, window in enumerate(windows):
        left = N_MASKED
        words = []
        for part in parts_of(validation, row, vocabulary.n_ordinary):
            for begin, end in words_of(window[part], vocabulary):
                words.append((part.start + begin, part.start + end))

        for i in generator.permutation(len(words)):
            begin, end = words[i]
            if end - begin <= left:
                masked[row, begin:end] = True
                left -= end - begin

    return masked


def parts_of(validation: ValidationSet, row: int, n_ordinary: int) -> list[slice]:
    """The columns of the documents in a window, without their `[SEP]`; in one text, all columns."""
    if validation.attention_mask is None:
        return [slice(0, validation.windows.shape[1])]
    numbers, lengths = validation.attention_mask[row].unique_consecutive(
        return_counts=True
    )
    window = validation.windows[row]
    parts = []
    begin = 0
    for number, length in zip(numbers.tolist(), lengths.tolist(), strict=True):
        end = begin + length
        is_whole = int(window[end - 1]) >= n_ordinary
        if number:
            parts.append(slice(begin, end - is_whole))
        begin = end
    return parts


def words_of(ids: torch.Tensor, vocabulary: Vocabulary) -> list[tuple[int, int]]:
    """The begin and the end of each word in a text of ids. Its borders may cut a word, so words that
    touch them are left out."""
    text, offsets = vocabulary.text_of(ids)
    words = []
    end = 0
    for piece in cut(text):
        begin, end = end, end + len(piece)
        if WORD.match(piece) and begin > 0 and end < len(text):
            words.append((begin, end))
    if offsets is None:
        return words
    # the tokens of each word; a word may have none of its own
    spans = torch.searchsorted(offsets, torch.tensor(words, dtype=torch.int64))
    return [(begin, end) for begin, end in spans.tolist() if begin < end]


def span_masks(validation: ValidationSet) -> torch.Tensor:
    """Random spans of five tokens of one document, each followed by a visible one, up to the
    budget; bool `[n_windows, 256]`."""
    generator = np.random.Generator(np.random.PCG64([SEED, SPAN]))
    n_slots = WINDOW_LEN // (SPAN + 1)
    is_whole = np.ones((validation.n_windows, n_slots), dtype=bool)
    if validation.attention_mask is not None:
        numbers = validation.attention_mask.cpu().numpy()
        firsts = numbers[:, :: SPAN + 1][:, :n_slots]
        lasts = numbers[:, SPAN - 1 :: SPAN + 1][:, :n_slots]
        is_whole = (firsts == lasts) & (firsts > 0)
    chosen = (ranks(generator, is_whole) < N_MASKED // SPAN) & is_whole
    slots = np.repeat(chosen, SPAN + 1, axis=1)
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
    distances = distance_to_visible(masked, validation.attention_mask)[masked]
    distances = distances.clamp(max=len(DISTANCES))

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


def distance_to_visible(
    masked: torch.Tensor, documents: torch.Tensor | None = None
) -> torch.Tensor:
    """Distance to the nearest visible token of the window, or of the same document if their numbers
    are given, `[n_windows, seq_len]`; 0 if visible itself."""
    columns = torch.arange(masked.shape[1])
    far = 2 * masked.shape[1]
    # the last visible column up to here
    before = columns.where(~masked, -far).cummax(1).values
    after = columns.where(~masked, far).flip(1).cummin(1).values.flip(1)
    if documents is not None:
        numbers = documents.cpu()
        last = masked.shape[1] - 1
        is_same_before = numbers == numbers.gather(1, before.clamp(min=0))
        is_same_after = numbers == numbers.gather(1, after.clamp(max=last))
        before = before.where(is_same_before, -far)
        after = after.where(is_same_after, far)

    return torch.minimum(columns - before, after - columns)


def _masked(
    model: nn.Module, validation: ValidationSet, masked: torch.Tensor, mask_token: int
) -> Measure:
    masked = validation.only_maskable(masked)
    outcomes = masked_outcomes(
        model, validation.windows, masked, mask_token, validation.attention_mask
    )
    return _measure(*outcomes)


def _measure(losses: torch.Tensor, correct: torch.Tensor) -> Measure:
    if not len(losses):
        return {"n": 0, "loss": None, "accuracy": None}
    return {
        "n": len(losses),
        "loss": losses.mean().item(),
        "accuracy": correct.double().mean().item(),
    }
