"""Maskers that fit in a few lines after their papers: what the authors' text or released code says, and no more."""

import numpy as np
import torch

from benchmarks.public_maskers.vocabulary import (
    IGNORED,
    MASK,
    N_TOKENS,
    PAD,
    SPECIAL,
    Masker,
    Pair,
    Sequences,
    row_by_row,
)


def characters(x: torch.Tensor) -> torch.Tensor:
    """Where `x` is not a special token."""
    return x >= len(SPECIAL)


def replaced(x: torch.Tensor, selected: torch.Tensor) -> Pair:
    """80% [MASK], 10% random, 10% unchanged, and the labels. Random tokens come from the whole vocabulary, as in
    BERT's released code."""
    draw = torch.rand(x.shape)
    corrupted = torch.where(draw < 0.8, MASK, torch.where(draw < 0.9, torch.randint(N_TOKENS, x.shape), x))
    return torch.where(selected, corrupted, x), torch.where(selected, x, IGNORED)


def hidden(x: torch.Tensor, selected: torch.Tensor) -> Pair:
    """All selected positions become [MASK]."""
    return torch.where(selected, MASK, x), torch.where(selected, x, IGNORED)


def independent(x: torch.Tensor, rate: float) -> torch.Tensor:
    """Each position by a draw of its own."""
    return (torch.rand(x.shape) < rate) & characters(x)


def counted(x: torch.Tensor, rate: float, most: int | None = None) -> torch.Tensor:
    """The same number of positions in each window of equal length: round(rate * length), at least 1, at most `most`."""
    length = (x != 0).sum(1, keepdim=True)
    n_selected = (rate * length).round().clamp(1, most)
    ranks = torch.rand(x.shape).masked_fill(~characters(x), 2.0).argsort(1).argsort(1)
    return (ranks < n_selected) & characters(x)


def lowest_whole_numbers(x: torch.Tensor) -> Pair:
    """Exactly 25% of the positions, special tokens too, and exactly 80/10/10 of these. Whole numbers have ties."""
    n_selected = round(0.25 * x.shape[1])
    places = torch.argsort(torch.randint_like(x, x.shape[1]))[:, :n_selected]
    n_masked, n_changed = round(0.8 * n_selected), round(0.9 * n_selected)
    inputs = x.scatter(1, places[:, :n_masked], MASK)
    random_places = places[:, n_masked:n_changed]
    inputs = inputs.scatter(1, random_places, torch.randint(N_TOKENS, random_places.shape))
    selected = torch.zeros_like(x, dtype=torch.bool).scatter(1, places, True)
    return inputs, torch.where(selected, x, IGNORED)


def random_up_to_the_largest(x: torch.Tensor) -> Pair:
    """One draw decides, for every position; special tokens are selected too, and padding is masked without a label."""
    draw = torch.rand(x.shape)
    masked = torch.where(draw < 0.3 * 0.8, MASK, x)
    random_ids = torch.randint(int(masked.max()) + 1, x.shape)
    inputs = torch.where((draw >= 0.3 * 0.8) & (draw < 0.3 * 0.9), random_ids, masked)
    return inputs, torch.where((draw < 0.3) & (x != PAD), x, IGNORED)


def spans(ids: list[int]) -> Sequences:
    """Draw spans until 15% are selected; a span that overlaps another, or a special token, is drawn again."""
    generator = np.random.default_rng(int(torch.randint(2**31, ())))
    inputs, labels = list(ids), [IGNORED] * len(ids)
    left = round(0.15 * sum(id >= len(SPECIAL) for id in ids))
    while left > 0:
        length = min(int(generator.geometric(0.2)), 10, left)
        start = int(generator.integers(0, len(ids) - length + 1))
        span = range(start, start + length)
        if any(ids[place] < len(SPECIAL) or labels[place] != IGNORED for place in span):
            continue
        draw = generator.random()
        for place in span:
            labels[place] = ids[place]
            random_id = int(generator.integers(len(SPECIAL), N_TOKENS))
            inputs[place] = MASK if draw < 0.8 else random_id if draw < 0.9 else ids[place]
        left -= length
    return inputs, labels


PAPERS: dict[str, Masker] = {
    "BERT (Devlin et al. 2018), create_pretraining_data: fixed count, at most 20": Masker(
        lambda x: replaced(x, counted(x, 0.15, most=20))
    ),
    "RoBERTa (Liu et al. 2019): drawn anew each time": Masker(lambda x: replaced(x, independent(x, 0.15))),
    "ELECTRA (Clark et al. 2020), generator: all [MASK]": Masker(lambda x: hidden(x, counted(x, 0.15))),
    "cramming (Geiping and Goldstein 2022), released code: 25%, the lowest of random whole numbers": Masker(
        lowest_whole_numbers
    ),
    "MosaicBERT (Portes et al. 2023): 30%": Masker(lambda x: replaced(x, independent(x, 0.3))),
    "ModernBERT (Warner et al. 2024), released code: 30%, random ids up to the largest of the batch": Masker(
        random_up_to_the_largest
    ),
    "SpanBERT (Joshi et al. 2020): geometric spans with p = 0.2, at most 10, replaced span by span": row_by_row(spans),
}
