"""Maskers whose outcomes depend on something that they should not depend on, and the finding that
must say so."""

from collections.abc import Callable
from itertools import count

import torch

from auditing.tests.museum.exhibit import (
    N_ORDINARY,
    PAD,
    Pair,
    TensorMasker,
    drawn,
    ordinary,
    random_ids,
    result,
    seeded,
)

PERMUTED = torch.randperm(N_ORDINARY, generator=torch.Generator().manual_seed(1))


def rated(x: torch.Tensor, rate: torch.Tensor) -> Pair:
    return result(x, drawn(x, rate))


def in_order(x: torch.Tensor) -> Pair:
    selected = drawn(x)
    return result(
        x,
        selected,
        (selected.cumsum(1) - 1) / selected.sum(1, keepdim=True).clamp(min=1),
    )


def redrawn(x: torch.Tensor, forbidden: Callable[[torch.Tensor], torch.Tensor]) -> Pair:
    """Random tokens without those that are forbidden."""
    tokens = random_ids(x)
    for _ in range(8):
        tokens = torch.where(forbidden(tokens), random_ids(x), tokens)
    return result(x, drawn(x), None, tokens)


def from_window(x: torch.Tensor) -> Pair:
    own = x.gather(1, torch.rand(x.shape).argsort(1))
    return result(x, drawn(x), None, torch.where(ordinary(own), own, random_ids(x)))


def row_repeated(x: torch.Tensor) -> Pair:
    selected = drawn(x)
    if len(x) > 8:
        selected[8::2] = selected[:-8:2]
    return result(x, selected & ordinary(x))


def edges_only(x: torch.Tensor) -> Pair:
    """Spares special tokens at the ends of windows only."""
    selected = (torch.rand(x.shape) < 0.15) & (x != PAD)
    last = (x != PAD).sum(1) - 1
    selected[:, 0] &= ordinary(x)[:, 0]
    selected[torch.arange(len(x)), last] &= ordinary(x)[torch.arange(len(x)), last]
    return result(x, selected)


def first_if_none(x: torch.Tensor) -> Pair:
    """A window that has no selected position gets its first ordinary one."""
    selected = drawn(x)
    first = ordinary(x).int().argmax(1)
    selected[torch.arange(len(x)), first] |= ~selected.any(1)
    return result(x, selected & ordinary(x))


def counted(x: torch.Tensor) -> Pair:
    """Random tokens are handed out in order."""
    selected = drawn(x)
    numbers = torch.arange(x.numel()).view(x.shape)
    draw = torch.rand(x.shape)
    random = selected & (draw >= 0.8) & (draw < 0.9)
    numbers[random] = torch.arange(int(random.sum())) + next(NUMBERS)
    return result(x, selected, draw, numbers % N_ORDINARY)


def rare_in_batch(x: torch.Tensor) -> Pair:
    """Prefers tokens that are rare in the batch."""
    rate = torch.bincount(x.flatten(), minlength=N_ORDINARY)[x].float() ** -0.5
    return result(x, drawn(x, 0.15 * rate / rate[ordinary(x)].mean()))


def in_pairs(x: torch.Tensor) -> Pair:
    """Draws for half as many pairs as there are positions: the last one of an odd number is never
    selected."""
    selected = drawn(x)
    if x.shape[1] % 2:
        selected[:, -1] = False
    return result(x, selected)


CALLS = count()
DRIFT = count()
NUMBERS = count(0, 100)
BUGS: dict[str, tuple[Callable[..., Pair], str]] = {
    "kinds in order": (in_order, "kind-by-position"),
    "kind per window": (
        lambda x: result(x, drawn(x), torch.rand(len(x), 1).expand(x.shape)),
        "kind-by-window",
    ),
    "kind by neighbor": (
        lambda x: result(
            x, drawn(x), torch.rand(x.shape) * torch.where(x.roll(1, 1) < 10, 0.8, 1)
        ),
        "kind-by-token-before",
    ),
    "kind by id": (
        lambda x: result(
            x, drawn(x), torch.rand(x.shape) * torch.where(x < 10, 0.8, 1)
        ),
        "kind-by-id",
    ),
    "never two neighbors": (
        lambda x: result(x, (s := drawn(x)) & ~s.roll(1, 1)),
        "never-neighbors",
    ),
    "rate rises with every call": (
        lambda x: rated(x, torch.tensor(0.1 + 0.001 * next(DRIFT))),
        "selected-by-call",
    ),
    "rate rises with the id": (
        lambda x: rated(x, 0.1 + 0.1 * x / N_ORDINARY),
        "selected-by-id",
    ),
    "rate by parity": (
        lambda x: rated(x, torch.where(x % 2 == 0, 0.1, 0.2)),
        "selected-by-id-parity",
    ),
    "rate by row": (
        lambda x: rated(x, torch.linspace(0.1, 0.2, len(x))[:, None]),
        "selected-by-row",
    ),
    "every 50th call unmasked": (
        lambda x: rated(x, torch.tensor(0.15 * (next(CALLS) % 50 > 0))),
        "calls-unmasked",
    ),
    "even and odd calls": (
        lambda x: rated(x, torch.tensor(0.1 + 0.1 * (next(CALLS) % 2))),
        "selected-by-call",
    ),
    "rate per batch": (lambda x: rated(x, 0.3 * torch.rand(1, 1)), "selected-by-batch"),
    "function of the id": (
        lambda x: result(x, drawn(x), None, PERMUTED[x.clamp(max=N_ORDINARY - 1)]),
        "replacement-by-original",
    ),
    "never a neighbor": (
        lambda x: redrawn(
            x, lambda new: (new == x.roll(1, 1)) | (new == x.roll(-1, 1))
        ),
        "replacement-by-neighbors",
    ),
    "from the window": (from_window, "replacement-by-window"),
    "one id per window": (
        lambda x: result(
            x, drawn(x), None, torch.randint(N_ORDINARY, (len(x), 1)).expand(x.shape)
        ),
        "replacement-by-other-replacements",
    ),
    "first position if none": (first_if_none, "position-dependent"),
    "last position of odd windows": (in_pairs, "position-dependent"),
    "random tokens in order": (counted, "replacement-by-other-replacements"),
    "rare tokens of the batch": (rare_in_batch, "selected-by-id"),
    "row repeated": (row_repeated, "selected-by-rows"),
    "seed of every tenth call": (lambda x: seeded(x, next(CALLS) % 10), "masks-return"),
    "special tokens inside": (edges_only, "special-selected"),
}


class Buffered(TensorMasker):
    """Returns the same buffers from every call."""

    def __call__(self, x: torch.Tensor) -> Pair:
        held = self.__dict__.setdefault("held", {})
        inputs, labels = held.setdefault(
            x.shape, (torch.empty_like(x), torch.empty_like(x))
        )
        for part, new in zip((inputs, labels), result(x, drawn(x)), strict=True):
            part.copy_(new)
        return inputs, labels


def batch_masker(
    extras: Callable[[torch.Tensor, torch.Tensor], dict[str, torch.Tensor]],
) -> TensorMasker:
    """A function of a batch dict that adds tensors: `extras` of the text and the selection."""

    def mask(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        x = batch["input_ids"]
        selected = drawn(x)
        inputs, labels = result(x, selected)
        return {
            "input_ids": inputs,
            "labels": labels,
            "attention_mask": (x != PAD).long(),
            **extras(x, selected),
        }

    return TensorMasker(mask)


BATCH_BUGS = {
    "attention-at-padding": batch_masker(
        lambda x, selected: {"attention_mask": torch.ones_like(x)}
    ),
    "attention-hides-text": batch_masker(
        lambda x, selected: {"attention_mask": selected.long()}
    ),
    "text-in-batch": batch_masker(lambda x, selected: {"original_ids": x}),
    "selection-in-batch": batch_masker(
        lambda x, selected: {"token_type_ids": selected.long()}
    ),
    "masks-in-inputs": batch_masker(
        lambda x, selected: {"position_ids": (~selected).cumsum(1)}
    ),
    "buffer-reused": Buffered(lambda x: (x, x)),
}
