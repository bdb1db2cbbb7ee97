"""The vocabulary that public maskers get: BERT's special tokens first, then 65 characters."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PAD, UNK, CLS, SEP, MASK = range(5)
WORDS = [*SPECIAL, *(chr(ord("A") + number) for number in range(65))]
N_TOKENS = len(WORDS)
IGNORED = -100

Pair = tuple[torch.Tensor, torch.Tensor]
Sequences = tuple[list[int], list[int]]


@dataclass
class Masker:
    """A public masker as a function of ids `[batch, seq_len]`, with the attributes that the audit reads."""

    mask: Callable[[torch.Tensor], Pair]
    ignored: int = IGNORED  # the label of positions that are not predicted
    mask_token: int = MASK
    no_mask_tokens: Sequence[int] = (CLS, SEP, UNK)
    n_tokens: int = N_TOKENS
    padding_token: ClassVar[int] = PAD

    def __call__(self, x: torch.Tensor) -> Pair:
        return self.mask(x)


def row_by_row(mask: Callable[[list[int]], Sequences], **settings: Any) -> Masker:
    """The masker of a function that masks one sequence of ids."""

    def batch(x: torch.Tensor) -> Pair:
        rows = [mask(row) for row in x.tolist()]
        return torch.tensor([inputs for inputs, _ in rows]), torch.tensor([labels for _, labels in rows])

    return Masker(batch, **settings)


def text_only(mask: Callable[[list[int]], Sequences], ignored: int) -> Masker:
    """The masker of a function that masks one text before special tokens are put around it."""

    def row(ids: list[int]) -> Sequences:
        places = [place for place, id in enumerate(ids) if id >= len(SPECIAL)]
        inputs, labels = list(ids), [ignored] * len(ids)
        for place, masked, label in zip(places, *mask([ids[place] for place in places]), strict=True):
            inputs[place], labels[place] = masked, label
        return inputs, labels

    return row_by_row(row, ignored=ignored)
