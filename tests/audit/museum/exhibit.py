"""An exhibit: a masker with one planted bug, and the name that the audit must give it. And the parts of maskers."""

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
Masking = Callable[[Any], Any]


class TensorMasker:
    """A masking function of ids `[batch, seq_len]` with the attributes by which the annotated interface is known."""

    padding_token, mask_token, no_mask_tokens, n_tokens = PAD, MASK, [CLS, SEP], N_TOKENS

    def __init__(self, mask: Masking):
        self.mask = mask

    def __call__(self, x: Any) -> Any:
        return self.mask(x)


@dataclass(frozen=True)
class Exhibit:
    """`bug` is the slug of the finding that the audit must report, with its verdict in the catalogue, which also cites
    where the bug was found."""

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


def labels_of(x: torch.Tensor, selected: torch.Tensor, ignored: int = IGNORED) -> torch.Tensor:
    """The originals at the selected positions, `ignored` elsewhere."""
    return torch.where(selected, x, ignored)


def result(
    x: torch.Tensor,
    selected: torch.Tensor,
    kind: torch.Tensor | None = None,
    random: torch.Tensor | None = None,
    mask: int = MASK,
) -> Pair:
    """80/10/10 at the selected positions, decided by `kind` from 0 to 1, with the random tokens `random`."""
    kind = torch.rand(x.shape) if kind is None else kind
    replaced = torch.where(kind < 0.9, random_ids(x) if random is None else random, x)
    return torch.where(selected, torch.where(kind < 0.8, mask, replaced), x), labels_of(x, selected)


def only_masks(x: torch.Tensor, selected: torch.Tensor) -> Pair:
    """[MASK] at the selected positions."""
    return result(x, selected, torch.zeros(x.shape))


def seeded(x: torch.Tensor, seed: int) -> Pair:
    """Selected by a generator that begins anew with a seed."""
    generator = torch.Generator().manual_seed(seed)
    return result(x, (torch.rand(x.shape, generator=generator) < RATE) & ordinary(x))


bert = TensorMasker(lambda x: result(x, drawn(x)))  # its recipe
