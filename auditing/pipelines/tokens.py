"""The token ids of an audited pipeline: the characters of the play, and special tokens after or before them."""

from dataclasses import dataclass

import numpy as np

from auditing.pipelines.batch import Array

SPECIAL = ("[PAD]", "[MASK]", "[CLS]", "[SEP]", "[UNK]")


@dataclass(frozen=True)
class Tokens:
    """Ids from 0 to `n_tokens` - 1. The audit itself has the characters first, so those are below `n_ordinary`."""

    characters: str
    special_first: bool = False  # for targets that rely on [PAD] being 0

    @property
    def names(self) -> list[str]:
        """The text of each id, `[n_tokens]`; special tokens by name."""
        return [*SPECIAL, *self.characters] if self.special_first else [*self.characters, *SPECIAL]

    @property
    def n_ordinary(self) -> int:
        """The number of characters."""
        return len(self.characters)

    @property
    def first_character(self) -> int:
        """The id of the first character."""
        return len(SPECIAL) if self.special_first else 0

    @property
    def n_tokens(self) -> int:
        """The number of characters and special tokens: the width of the logits."""
        return self.n_ordinary + len(SPECIAL)

    @property
    def padding(self) -> int:
        """The id of [PAD]."""
        return self.names.index("[PAD]")

    @property
    def mask(self) -> int:
        """The id of [MASK]."""
        return self.names.index("[MASK]")

    @property
    def cls(self) -> int:
        """The id of [CLS]."""
        return self.names.index("[CLS]")

    @property
    def sep(self) -> int:
        """The id of [SEP]."""
        return self.names.index("[SEP]")

    @property
    def unknown(self) -> int:
        """The id of [UNK]."""
        return self.names.index("[UNK]")

    def of_audit(self, ids: Array) -> Array:
        """These ids of the audit's; other values, such as an ignored label of -100, stay."""
        return self._shifted(ids, self.first_character)

    def to_audit(self, ids: Array) -> Array:
        """The audit's ids of these."""
        return self._shifted(ids, -self.first_character)

    def _shifted(self, ids: Array, by: int) -> Array:
        return np.where((ids >= 0) & (ids < self.n_tokens), (ids + by) % self.n_tokens, ids)

    def columns_to_audit(self, logits: Array) -> Array:
        """Logits `[..., n]` with the columns of these ids in the audit's order; further columns stay."""
        return logits[..., self.of_audit(np.arange(logits.shape[-1]))]

    def columns_of_audit(self, logits: Array) -> Array:
        """The inverse of `columns_to_audit`."""
        return logits[..., self.to_audit(np.arange(logits.shape[-1]))]
