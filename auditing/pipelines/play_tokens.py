"""The token ids of an audited pipeline: the characters of the play, and special tokens after or before them."""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
SPECIAL = ("[PAD]", "[MASK]", "[CLS]", "[SEP]", "[UNK]")


class Tokens:
    """Ids from 0 to `n_tokens` - 1. The audit itself has the characters first, so those are below `n_ordinary`."""

    def __init__(self, characters: str, special_first: bool = False):
        """`special_first` is for targets that rely on [PAD] being 0."""
        self.characters = characters
        self.names = [*SPECIAL, *characters] if special_first else [*characters, *SPECIAL]  # the text of each id
        self.n_ordinary, self.n_tokens = len(characters), len(self.names)
        self.first_character = len(SPECIAL) if special_first else 0
        self.padding, self.mask, self.cls, self.sep, self.unknown = (self.names.index(name) for name in SPECIAL)

    def of_audit(self, ids: Array, by: int = 1) -> Array:
        """These ids of the audit's; other values, such as an ignored label of -100, stay."""
        shifted = (ids + by * self.first_character) % self.n_tokens
        return np.where((ids >= 0) & (ids < self.n_tokens), shifted, ids)

    def to_audit(self, ids: Array) -> Array:
        """The audit's ids of these."""
        return self.of_audit(ids, by=-1)

    def is_ordinary(self, ids: Array) -> Array:
        """Whether the audit's ids are characters."""
        return (ids >= 0) & (ids < self.n_ordinary)
