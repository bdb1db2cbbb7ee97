"""Bugs in which positions are selected, and how many."""

import torch

from tests.audit.museum.exhibit import (
    MASK,
    PAD,
    RATE,
    Pair,
    corrupted,
    drawn,
    exhibit,
    labels_of,
    ordinary,
)


@exhibit("drawn-with-replacement")
def same_position_twice(x: torch.Tensor) -> Pair:
    """Positions are drawn with replacement: some are drawn twice, so fewer than 15% are selected."""
    batch, seq_len = x.shape
    positions = torch.randint(seq_len, (batch, -int(-RATE * seq_len // 1)))
    selected = torch.zeros(x.shape, dtype=torch.bool).scatter(1, positions, True) & ordinary(x)
    return corrupted(x, selected), labels_of(x, selected)


@exhibit("rounded-down")
def count_rounded_down(x: torch.Tensor) -> Pair:
    """The number of positions is int(rate * length): always rounded down, and 0 in a short window."""
    n_selected = int(RATE * x.shape[1])
    order = torch.rand(x.shape).masked_fill(~ordinary(x), 2.0).argsort(1)
    selected = torch.zeros(x.shape, dtype=torch.bool).scatter(1, order[:, :n_selected], True) & ordinary(x)
    return corrupted(x, selected), labels_of(x, selected)


@exhibit("too-many-selected", "broken")
def comparison_reversed(x: torch.Tensor) -> Pair:
    """The comparison is the wrong way round: 85% are masked, and 15% are left."""
    selected = (torch.rand(x.shape) > RATE) & ordinary(x)
    return corrupted(x, selected), labels_of(x, selected)


@exhibit("empty-windows")
def positions_forgotten(x: torch.Tensor) -> Pair:
    """The list of masked positions is emptied again unless the text has to be cut: short texts have no labels."""
    selected = drawn(x)
    inputs = corrupted(x, selected)
    needs_cutting = x.shape[1] > 512
    return inputs, labels_of(x, selected & needs_cutting)


@exhibit("position-dependent")
def indices_taken_for_ranks(x: torch.Tensor) -> Pair:
    """Indices of a sort are taken for ranks: with padding, the first positions are hardly ever selected."""
    draw = torch.rand(x.shape).masked_fill(~ordinary(x), -1.0)
    n_others = (~ordinary(x)).sum(1, keepdim=True)
    ranks = draw.argsort(1) - n_others
    selected = (ranks < RATE * (x.shape[1] - n_others)) & ordinary(x)
    return corrupted(x, selected), labels_of(x, selected)


@exhibit("special-selected")
def special_tokens_selected(x: torch.Tensor) -> Pair:
    """`pass` where `continue` is meant: [CLS] and [SEP] are masked and predicted like other tokens."""
    selected = (torch.rand(x.shape) < RATE) & (x != PAD)
    return corrupted(x, selected), labels_of(x, selected)


@exhibit("padding-labelled")
def padding_selected(x: torch.Tensor) -> Pair:
    """The tokenizer does not count padding among its special tokens, so padding is masked and predicted."""
    selected = (torch.rand(x.shape) < RATE) & (ordinary(x) | (x == PAD))
    return corrupted(x, selected), labels_of(x, selected)


@exhibit("padding-labelled")
def attention_mask_reversed(x: torch.Tensor) -> Pair:
    """The attention mask is 1 at text, but is read as 'may not be selected': only padding is masked."""
    attention_mask = x != PAD
    unmaskable = attention_mask | ((x != PAD) & ~ordinary(x))
    selected = (torch.rand(x.shape) < RATE) & ~unmaskable
    return torch.where(selected, MASK, x), labels_of(x, selected)


@exhibit("left-truncated")
def labels_cut_to_a_fixed_length(x: torch.Tensor) -> Pair:
    """The list of labels has a fixed length: what does not fit is cut off on the left, and has no label."""
    selected = drawn(x)
    most = int(RATE * x.shape[1])
    from_the_right = selected.flip(1).cumsum(1).flip(1)
    return torch.where(selected, MASK, x), labels_of(x, selected & (from_the_right <= most))


@exhibit("first-position")
def first_and_last_column_spared(x: torch.Tensor) -> Pair:
    """The first and the last column are taken for [CLS] and [SEP], whatever stands there."""
    selected = drawn(x)
    selected[:, 0] = False
    selected[:, -1] = False
    return corrupted(x, selected), labels_of(x, selected)
