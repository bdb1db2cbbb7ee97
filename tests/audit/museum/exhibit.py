"""An exhibit: a masker with one planted bug, and the name that the audit must give it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

# Characters first, then the special tokens, as in Folio's own vocabulary.
N_ORDINARY = 65
PAD, MASK, CLS, SEP = 65, 66, 67, 68
N_TOKENS = 69
IGNORED = -100
RATE = 0.15

Pair = tuple[torch.Tensor, torch.Tensor]


class TensorMasker:
    """A masking function of ids `[batch, seq_len]` with the attributes by which the annotated interface is known."""

    padding_token, mask_token, no_mask_tokens, n_tokens = PAD, MASK, [CLS, SEP], N_TOKENS

    def __init__(self, mask: Callable[[torch.Tensor], Pair]):
        self.mask = mask

    def __call__(self, x: torch.Tensor) -> Pair:
        return self.mask(x)


@dataclass(frozen=True)
class Exhibit:
    """A masker of the museum. `bug` is the slug of the finding that the audit must report, with its verdict in the
    catalogue, which also cites where the bug was found."""

    name: str
    target: Any
    bug: str
    verdict: str | None = None  # that of the catalogue
    options: dict[str, Any] = field(default_factory=dict)


EXHIBITS: list[Exhibit] = []


def exhibit(
    bug: str, verdict: str | None = None, make: Callable[[Any], Any] = TensorMasker, **options: Any
) -> Callable[..., Any]:
    """Register a masking function under its own name; `make` turns it into the target that the audit is given."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        EXHIBITS.append(Exhibit(function.__name__, make(function), bug, verdict, options))
        return function

    return register


def ordinary(x: torch.Tensor) -> torch.Tensor:
    """Where `x` is a character, and not a special token."""
    return x < N_ORDINARY


def drawn(x: torch.Tensor, rate: float = RATE) -> torch.Tensor:
    """Characters selected independently, as in BERT's recipe."""
    return (torch.rand(x.shape) < rate) & ordinary(x)


def random_ids(x: torch.Tensor) -> torch.Tensor:
    """Random characters in the shape of `x`."""
    return torch.randint(N_ORDINARY, x.shape)


def corrupted(x: torch.Tensor, selected: torch.Tensor, mask_token: int = MASK) -> torch.Tensor:
    """80% [MASK], 10% random characters, 10% unchanged at the selected positions: one draw decides."""
    draw = torch.rand(x.shape)
    replaced = torch.where(draw < 0.8, mask_token, torch.where(draw < 0.9, random_ids(x), x))
    return torch.where(selected, replaced, x)


def labels_of(x: torch.Tensor, selected: torch.Tensor) -> torch.Tensor:
    """The originals at the selected positions, IGNORED elsewhere."""
    return torch.where(selected, x, IGNORED)
