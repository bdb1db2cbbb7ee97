"""Bugs in what stands at the selected positions: the shares of [MASK], random and unchanged, and the random tokens."""

import torch

from tests.audit.museum.exhibit import (
    MASK,
    N_ORDINARY,
    N_TOKENS,
    Pair,
    corrupted,
    drawn,
    exhibit,
    labels_of,
    random_ids,
)


@exhibit("random-overwritten")
def mask_after_random(x: torch.Tensor) -> Pair:
    """Random tokens are put in first, and [MASK] then falls on 90% of all selected positions, the random ones too."""
    selected = drawn(x)
    inputs = torch.where(selected & (torch.rand(x.shape) < 0.1), random_ids(x), x)
    inputs = torch.where(selected & (torch.rand(x.shape) < 0.9), MASK, inputs)
    return inputs, labels_of(x, selected)


@exhibit("never-random")
def threshold_of_the_wrong_variable(x: torch.Tensor) -> Pair:
    """The second threshold adds to the wrong variable (0.15 + 0.1, not 0.8 + 0.1), so its branch is never reached."""
    masking_ratio, masking_prob, random_prob = 0.15, 0.8, 0.1
    selected = drawn(x, masking_ratio)
    draw = torch.rand(x.shape)
    replaced = torch.where(draw < masking_ratio + random_prob, random_ids(x), x)
    inputs = torch.where(selected, torch.where(draw < masking_prob, MASK, replaced), x)
    return inputs, labels_of(x, selected)


@exhibit("overlapping-draws")
def two_overlapping_draws(x: torch.Tensor) -> Pair:
    """Two independent draws decide 'unchanged' and 'random', and 'random' wins where both fall: 81/10/9."""
    selected = drawn(x)
    unchanged = selected & (torch.rand(x.shape) < 0.1)
    at_random = selected & (torch.rand(x.shape) < 0.1)
    inputs = torch.where(selected & ~unchanged & ~at_random, MASK, x)
    return torch.where(at_random, random_ids(x), inputs), labels_of(x, selected)


@exhibit("random-share")
def tenth_of_the_rest(x: torch.Tensor) -> Pair:
    """The second draw is over what the first left, but its probability is that of the whole: 80/2/18."""
    selected = drawn(x)
    masked = selected & (torch.rand(x.shape) < 0.8)
    at_random = selected & ~masked & (torch.rand(x.shape) < 0.1)
    inputs = torch.where(masked, MASK, torch.where(at_random, random_ids(x), x))
    return inputs, labels_of(x, selected)


@exhibit("random-constant")
def random_number_for_a_word(x: torch.Tensor) -> Pair:
    """The random token is drawn as a number where a word is expected; the vocabulary maps every number to one id."""
    vocabulary = {chr(ord("0") + id): id for id in range(N_ORDINARY)}
    unknown = 0
    selected = drawn(x)
    draw = torch.rand(x.shape)
    ids = [vocabulary.get(number, unknown) for number in random_ids(x).flatten().tolist()]
    replaced = torch.where(draw < 0.9, torch.tensor(ids).view(x.shape), x)
    return torch.where(selected, torch.where(draw < 0.8, MASK, replaced), x), labels_of(x, selected)


@exhibit("special-as-replacement")
def random_over_the_whole_vocabulary(x: torch.Tensor) -> Pair:
    """Random tokens are drawn from the whole vocabulary, so [PAD], [MASK] and the other special tokens among them."""
    selected = drawn(x)
    draw = torch.rand(x.shape)
    replaced = torch.where(draw < 0.9, torch.randint(N_TOKENS, x.shape), x)
    return torch.where(selected, torch.where(draw < 0.8, MASK, replaced), x), labels_of(x, selected)


@exhibit("replacement-range")
def lowest_id_of_another_vocabulary(x: torch.Tensor) -> Pair:
    """The lowest id of a random token is a constant of another vocabulary, so the ids below it are never drawn."""
    selected = drawn(x)
    draw = torch.rand(x.shape)
    replaced = torch.where(draw < 0.9, torch.randint(9, N_ORDINARY, x.shape), x)
    return torch.where(selected, torch.where(draw < 0.8, MASK, replaced), x), labels_of(x, selected)


@exhibit("changed-without-label")
def random_tokens_everywhere(x: torch.Tensor) -> Pair:
    """Random tokens are drawn for every position of the window: inputs are corrupted without a label."""
    selected = drawn(x)
    at_random = (torch.rand(x.shape) < 0.1) & (x < N_ORDINARY)
    masked = selected & ~at_random & (torch.rand(x.shape) < 0.9)
    return torch.where(at_random, random_ids(x), torch.where(masked, MASK, x)), labels_of(x, selected)


@exhibit("nothing-hidden")
def draw_compared_with_itself(x: torch.Tensor) -> Pair:
    """The draw is compared with a share of itself (draw < draw * 0.8), so every selected position stays as it is."""
    selected = drawn(x)
    draw = torch.rand(x.shape)
    replaced = torch.where(draw < draw * 0.8, MASK, torch.where(draw < draw * 0.9, random_ids(x), x))
    return torch.where(selected, replaced, x), labels_of(x, selected)


@exhibit("mask-is-ordinary")
def mask_inside_the_vocabulary(x: torch.Tensor) -> Pair:
    """The id of [MASK] is another setting's number: an ordinary token has the same id."""
    selected = drawn(x)
    return corrupted(x, selected, mask_token=N_ORDINARY - 1), labels_of(x, selected)


@exhibit("out-of-vocabulary")
def last_id_included(x: torch.Tensor) -> Pair:
    """random.randint(0, n) includes n, which no token has: one random token in n + 1 is outside the embedding."""
    selected = drawn(x)
    draw = torch.rand(x.shape)
    replaced = torch.where(draw < 0.9, torch.randint(N_TOKENS + 1, x.shape), x)
    return torch.where(selected, torch.where(draw < 0.8, MASK, replaced), x), labels_of(x, selected)
