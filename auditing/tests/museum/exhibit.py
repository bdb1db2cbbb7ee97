"""Masking functions with one planted bug each, and the parts that they are made of.

The bugs were found in public projects; the code is our own. Each has the name that the audit must
give it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

# Characters first, then the special tokens, as in Folio's own vocabulary.
N_ORDINARY = 65
PAD = 65
MASK = 66
CLS = 67
SEP = 68
N_TOKENS = 69
IGNORED = -100
RATE = 0.15

Pair = tuple[torch.Tensor, torch.Tensor]
Masking = Callable[[Any], Any]


class TensorMasker:
    """A masking function of ids `[batch, seq_len]` with the attributes by which the annotated
    interface is known."""

    padding_token = PAD
    mask_token = MASK
    no_mask_tokens = [CLS, SEP]
    n_tokens = N_TOKENS

    def __init__(self, mask: Masking):
        self.mask = mask

    def __call__(self, x: Any) -> Any:
        return self.mask(x)


@dataclass(frozen=True)
class Exhibit:
    """`bug` is the slug of the finding that the audit must report, with its verdict in the
    catalogue, which also cites where the bug was found."""

    name: str
    bug: str
    target: Any
    verdict: str | None = None  # that of the catalogue
    options: dict[str, Any] = field(default_factory=dict)


def ordinary(x: torch.Tensor) -> torch.Tensor:
    """Where `x` is a character, and not a special token."""
    return x < N_ORDINARY


def drawn(x: torch.Tensor, rate: Any = RATE) -> torch.Tensor:
    """Characters selected independently, as in BERT's recipe."""
    return (torch.rand(x.shape) < rate) & ordinary(x)


def random_ids(x: torch.Tensor) -> torch.Tensor:
    """Random characters in the shape of `x`."""
    return torch.randint(N_ORDINARY, x.shape)


def labels_of(
    x: torch.Tensor, selected: torch.Tensor, ignored: int = IGNORED
) -> torch.Tensor:
    """The originals at the selected positions, `ignored` elsewhere."""
    return torch.where(selected, x, ignored)


def result(
    x: torch.Tensor,
    selected: torch.Tensor,
    kind: torch.Tensor | None = None,
    random: torch.Tensor | None = None,
    mask: int = MASK,
) -> Pair:
    """80/10/10 at the selected positions, decided by `kind` from 0 to 1, with the random tokens
    `random`."""
    kind = torch.rand(x.shape) if kind is None else kind
    replaced = torch.where(kind < 0.9, random_ids(x) if random is None else random, x)
    return torch.where(selected, torch.where(kind < 0.8, mask, replaced), x), labels_of(
        x, selected
    )


def only_masks(x: torch.Tensor, selected: torch.Tensor) -> Pair:
    """[MASK] at the selected positions."""
    return result(x, selected, torch.zeros(x.shape))


def seeded(x: torch.Tensor, seed: int) -> Pair:
    """Selected by a generator that begins anew with a seed."""
    generator = torch.Generator().manual_seed(seed)
    return result(x, (torch.rand(x.shape, generator=generator) < RATE) & ordinary(x))


bert = TensorMasker(lambda x: result(x, drawn(x)))  # its recipe


def new_labels_not_returned(x: torch.Tensor) -> Pair:
    """Labels with -100 are built but never put into the batch: the model is trained on all tokens."""
    return only_masks(x, drawn(x))[0], torch.where(x == PAD, IGNORED, x)


def originals_by_reference(x: torch.Tensor) -> Pair:
    """The originals are remembered by reference, then the array is masked: the labels are the
    masked inputs."""
    selected = drawn(x)
    inputs, _ = result(x, selected)
    return inputs, labels_of(inputs, selected)


def marks_without_cls(x: torch.Tensor) -> Pair:
    """[CLS] is put before the text but not before the marks of the masked tokens: labels stand one
    position off."""
    selected = drawn(x)
    marks = torch.cat([selected[:, 1:], torch.zeros(len(x), 1, dtype=torch.bool)], 1)
    return result(x, selected)[0], labels_of(x, marks)


def masked_in_place(x: torch.Tensor) -> Pair:
    """The batch is masked in place, and the caller goes on to use it as the unmasked text."""
    inputs, labels = result(x, drawn(x))
    return x.copy_(inputs), labels


def other_ignored(ignored: int) -> Masking:
    """Labels above 0 count, so the token whose id is 0 is never learnt; or -1, which the loss used
    to ignore."""

    def mask(x: torch.Tensor) -> Pair:
        selected = drawn(x)
        return result(x, selected)[0], labels_of(x, selected, ignored)

    return mask


def masks_of_the_preparation(x: torch.Tensor) -> Pair:
    """Masks are drawn once, when the dataset is prepared: every epoch hides the same positions."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(42)
        return result(x, drawn(x))


class SeededDataset(TensorMasker):
    """The dataset has a seeded generator, and every worker gets a copy of it: all workers draw the
    same masks."""

    def __init__(self) -> None:
        self.generator = np.random.default_rng(47)

    def __call__(self, x: torch.Tensor) -> Pair:
        select, kind = torch.from_numpy(self.generator.random((2, *x.shape)))
        random = torch.from_numpy(
            self.generator.integers(N_ORDINARY, size=tuple(x.shape))
        )
        return result(x, (select < RATE) & ordinary(x), kind, random)


def mask_after_random(x: torch.Tensor) -> Pair:
    """Random tokens are put in first, and [MASK] then falls on 90% of all selected positions, the
    random ones too."""
    selected = drawn(x)
    first, second = torch.rand(2, *x.shape)
    inputs = torch.where(selected & (first < 0.1), random_ids(x), x)
    return torch.where(selected & (second < 0.9), MASK, inputs), labels_of(x, selected)


def two_overlapping_draws(x: torch.Tensor) -> Pair:
    """Two independent draws decide 'unchanged' and 'random', and 'random' wins where both fall:
    81/10/9."""
    unchanged, random = torch.rand(2, *x.shape) < 0.1
    return result(
        x, drawn(x), torch.where(random, 0.85, torch.where(unchanged, 1.0, 0.0))
    )


def tenth_of_the_rest(x: torch.Tensor) -> Pair:
    """The second draw is over what the first left, but its probability is that of the whole:
    80/2/18."""
    first, second = torch.rand(2, *x.shape)
    return result(
        x, drawn(x), torch.where(first < 0.8, 0.0, torch.where(second < 0.1, 0.85, 1.0))
    )


def random_tokens_everywhere(x: torch.Tensor) -> Pair:
    """Random tokens are drawn for every position of the window: inputs are corrupted without a
    label."""
    selected = drawn(x)
    first, second = torch.rand(2, *x.shape)
    at_random = (first < 0.1) & ordinary(x)
    masked = torch.where(selected & (second < 0.9), MASK, x)
    return torch.where(at_random, random_ids(x), masked), labels_of(x, selected)


def same_position_twice(x: torch.Tensor) -> Pair:
    """Positions are drawn with replacement: some are drawn twice, so fewer than 15% are selected."""
    positions = torch.randint(x.shape[1], (len(x), -int(-RATE * x.shape[1] // 1)))
    return result(
        x,
        torch.zeros(x.shape, dtype=torch.bool).scatter(1, positions, True)
        & ordinary(x),
    )


def count_rounded_down(x: torch.Tensor) -> Pair:
    """The number of positions is int(rate * length): always rounded down, and 0 in a short window."""
    order = (
        torch.rand(x.shape)
        .masked_fill(~ordinary(x), 2.0)
        .argsort(1)[:, : int(RATE * x.shape[1])]
    )
    return result(
        x, torch.zeros(x.shape, dtype=torch.bool).scatter(1, order, True) & ordinary(x)
    )


def positions_forgotten(x: torch.Tensor) -> Pair:
    """The list of masked positions is emptied again unless the text has to be cut: short texts have
    no labels."""
    selected = drawn(x)
    return result(x, selected)[0], labels_of(x, selected & (x.shape[1] > 512))


def indices_taken_for_ranks(x: torch.Tensor) -> Pair:
    """Indices of a sort are taken for ranks: with padding, the first positions are hardly ever
    selected."""
    n_others = (~ordinary(x)).sum(1, keepdim=True)
    ranks = torch.rand(x.shape).masked_fill(~ordinary(x), -1.0).argsort(1) - n_others
    return result(x, (ranks < RATE * (x.shape[1] - n_others)) & ordinary(x))


def labels_cut_to_a_fixed_length(x: torch.Tensor) -> Pair:
    """The list of labels has a fixed length: what does not fit is cut off on the left, and has no
    label."""
    selected = drawn(x)
    from_the_right = selected.flip(1).cumsum(1).flip(1)
    return only_masks(x, selected)[0], labels_of(
        x, selected & (from_the_right <= int(RATE * x.shape[1]))
    )


def first_and_last_column_spared(x: torch.Tensor) -> Pair:
    """The first and the last column are taken for [CLS] and [SEP], whatever stands there."""
    selected = drawn(x)
    selected[:, [0, -1]] = False
    return result(x, selected)


def of_vocabulary(low: int, high: int) -> Masking:
    """Random tokens from other bounds: those of the whole vocabulary, or of another one."""
    return lambda x: result(x, drawn(x), None, torch.randint(low, high, x.shape))


def planted(
    name: str, bug: str, mask: Any, verdict: str | None = None, **options: Any
) -> Exhibit:
    return Exhibit(
        name,
        bug,
        mask if isinstance(mask, TensorMasker) else TensorMasker(mask),
        verdict,
        options,
    )


BUGS = [
    planted("new_labels_not_returned", "labels-everywhere", new_labels_not_returned),
    planted("originals_by_reference", "labels-corrupted", originals_by_reference),
    planted("marks_without_cls", "labels-shifted", marks_without_cls),
    planted("masked_in_place", "argument-modified", masked_in_place),
    planted("zero_is_no_label", "padding-is-character", other_ignored(0), ignored=0),
    planted(
        "ignored_label_of_an_old_version",
        "wrong-ignored-label",
        other_ignored(-1),
        ignored=IGNORED,
    ),
    # Evaluation passes the text itself as inputs and labels: perplexity 1.0.
    planted(
        "evaluation_without_masks", "nothing-hidden", lambda x: (x.clone(), x.clone())
    ),
    planted("masks_of_the_preparation", "static-masks", masks_of_the_preparation),
    # One row of draws, of the windows' length, is broadcast over the batch.
    planted(
        "one_mask_for_all",
        "same-mask-in-batch",
        lambda x: result(x, (torch.rand(x.shape[1]) < RATE) & ordinary(x)),
    ),
    planted(
        "generator_copied_to_workers",
        "same-masks-per-worker",
        SeededDataset(),
        "differs",
    ),
    planted("mask_after_random", "random-overwritten", mask_after_random),
    # The second threshold adds to the wrong variable (0.15 + 0.1, not 0.8 + 0.1), so its branch is
    # never reached.
    planted(
        "threshold_of_the_wrong_variable",
        "never-random",
        lambda x: result(x, drawn(x), None, x),
    ),
    planted("two_overlapping_draws", "overlapping-draws", two_overlapping_draws),
    planted("tenth_of_the_rest", "random-share", tenth_of_the_rest),
    # The random token is drawn as a number where a word is expected; the vocabulary maps every
    # number to one id.
    planted("random_number_for_a_word", "random-constant", of_vocabulary(0, 1)),
    planted(
        "random_over_the_whole_vocabulary",
        "special-as-replacement",
        of_vocabulary(0, N_TOKENS),
    ),
    planted(
        "lowest_id_of_another_vocabulary",
        "replacement-range",
        of_vocabulary(9, N_ORDINARY),
    ),
    # random.randint(0, n) includes n, which no token has: one random token in n + 1 is outside the
    # embedding.
    planted("last_id_included", "out-of-vocabulary", of_vocabulary(0, N_TOKENS + 1)),
    planted(
        "random_tokens_everywhere", "changed-without-label", random_tokens_everywhere
    ),
    # The draw is compared with a share of itself (draw < draw * 0.8), so every selected position
    # stays as it is.
    planted(
        "draw_compared_with_itself",
        "nothing-hidden",
        lambda x: result(x, drawn(x), torch.ones(x.shape)),
    ),
    # The id of [MASK] is another setting's number: an ordinary token has the same id.
    planted(
        "mask_inside_the_vocabulary",
        "mask-is-ordinary",
        lambda x: result(x, drawn(x), mask=N_ORDINARY - 1),
    ),
    planted("same_position_twice", "drawn-with-replacement", same_position_twice),
    planted("count_rounded_down", "rounded-down", count_rounded_down),
    # The comparison is the wrong way round: 85% are masked, and 15% are left.
    planted(
        "comparison_reversed",
        "too-many-selected",
        lambda x: result(x, drawn(x, 1 - RATE)),
        "broken",
    ),
    planted("positions_forgotten", "empty-windows", positions_forgotten),
    planted("indices_taken_for_ranks", "position-dependent", indices_taken_for_ranks),
    # `pass` where `continue` is meant: [CLS] and [SEP] are masked and predicted like other tokens.
    planted(
        "special_selected",
        "special-selected",
        lambda x: result(x, (torch.rand(x.shape) < RATE) & (x != PAD)),
    ),
    # The tokenizer does not count padding among its special tokens, so padding is masked and
    # predicted.
    planted(
        "padding_selected",
        "padding-labelled",
        lambda x: result(x, (torch.rand(x.shape) < RATE) & (x <= PAD)),
    ),
    # The attention mask is 1 at text, but is read as 'may not be selected': only padding is masked.
    planted(
        "attention_reversed",
        "padding-labelled",
        lambda x: only_masks(x, (torch.rand(x.shape) < RATE) & (x == PAD)),
    ),
    planted(
        "labels_cut_to_a_fixed_length", "left-truncated", labels_cut_to_a_fixed_length
    ),
    planted(
        "first_and_last_column_spared", "first-position", first_and_last_column_spared
    ),
]
