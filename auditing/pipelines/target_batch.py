"""A pipeline's tokens and batches in the audit's terms: inputs, labels and further tensors by name."""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from auditing.errors import describe
from auditing.masks.target import parts_of, read
from auditing.masks.texts import Masked
from auditing.masks.tokens import TokenIds
from auditing.statistics import Array

# a function of the target's process by name: call(name, *arguments)
Call = Callable[..., Any]

SPECIAL = ("[PAD]", "[MASK]", "[CLS]", "[SEP]", "[UNK]")
FORM = "a batch must be a dict with input_ids and labels, or a tuple (inputs, labels, ...), ids [batch, seq_len]"


class Tokens:
    """Ids from 0 to `n_tokens` - 1. The audit itself has the characters first, so those are below
    `n_ordinary`."""

    def __init__(self, characters: str, special_first: bool = False):
        """`special_first` is for targets that rely on [PAD] being 0."""
        self.names = (
            [*SPECIAL, *characters] if special_first else [*characters, *SPECIAL]
        )  # the text of each id
        self.characters = characters
        self.n_ordinary = len(characters)
        self.n_tokens = len(self.names)
        self.first_character = len(SPECIAL) if special_first else 0
        self.padding, self.mask, self.cls, self.sep, self.unknown = (
            self.names.index(name) for name in SPECIAL
        )

    @property
    def ids(self) -> TokenIds:
        """The audit's ids, as for an audit of masks."""
        special = tuple(range(self.n_ordinary, self.n_tokens))
        padding, mask, cls, sep, unknown = special
        return TokenIds(self.n_tokens, mask, padding, special, (cls, sep), unknown)

    def of_audit(self, ids: Array, by: int = 1) -> Array:
        """These ids of the audit's, or back; other values, such as an ignored label of -100, stay."""
        shifted = (ids + by * self.first_character) % self.n_tokens
        return np.where((ids >= 0) & (ids < self.n_tokens), shifted, ids)


def read_batch(batch: Any, tokens: Tokens) -> Masked:
    """The arrays of a batch, with the audit's ids. Raises TargetError if it has another form."""
    found = read(
        batch, None, tokens.padding, f"make_batches gave {describe(batch)}: {FORM}"
    )
    return replace(
        found,
        inputs=tokens.of_audit(found.inputs, by=-1),
        labels=tokens.of_audit(found.labels, by=-1),
    )


def changed(batch: Any, changes: Mapping[str, Array], tokens: Tokens) -> Any:
    """A copy of a batch with other values, by the names of `Masked.arrays`."""
    parts, x, y = parts_of(batch)
    key_of = {f"item {k + 1}" if isinstance(k, int) else str(k): k for k in parts} | {
        "inputs": x,
        "labels": y,
    }
    new = {}
    for name, value in changes.items():
        of_target = tokens.of_audit(value) if name in ("inputs", "labels") else value
        new[key_of[name]] = torch.as_tensor(of_target).to(
            torch.as_tensor(parts[key_of[name]])
        )

    if not isinstance(batch, Mapping):
        values = [new.get(i, value) for i, value in enumerate(batch)]
        return (
            type(batch)(*values) if hasattr(batch, "_fields") else type(batch)(values)
        )

    other: Any = copy(batch)  # of the same type, such as a BatchEncoding
    for key, tensor in new.items():
        other[key] = tensor
    return other
