"""A text in two parts."""

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from data.play.automaton import Automaton

if TYPE_CHECKING:
    from data.text.stored import StoredText


@dataclass(frozen=True, eq=False)  # labml hashes the values of items
class Corpus:
    """A text in two parts: models, strategies and counting learn from `training`; `validation` only
    measures them. `name` is `tiny_shakespeare`, `play`, a path, or the
    reference of a function.
    """

    name: str
    training: str = field(repr=False)
    validation: str = field(repr=False)
    # the source of the text, if it is known exactly
    automaton: Automaton | None = field(default=None, repr=False)
    # the whole text, if it is too large for the memory or has documents (see `data.users_text.StoredCorpus`)
    stored: "StoredText | None" = field(default=None, repr=False)

    @classmethod
    def from_text(
        cls, name: str, text: str, automaton: Automaton | None = None
    ) -> "Corpus":
        """Split a text: the first 90% of its characters are for training, the rest for validation."""
        split = int(len(text) * 0.9)
        return cls(name, text[:split], text[split:], automaton)

    @cached_property
    def counts(self) -> Counter[str]:
        """How often each character occurs in both parts."""
        return Counter(self.training + self.validation)

    @property
    def is_sample(self) -> bool:
        """Whether `training` is only a part of the training text."""
        return False

    @property
    def has_documents(self) -> bool:
        """Whether the text has documents, each followed by `[SEP]`, or is one text."""
        return False

    @property
    def sha256(self) -> str:
        """The hash of the whole text in UTF-8, which identifies the text whatever its name."""
        return hashlib.sha256((self.training + self.validation).encode()).hexdigest()

    @property
    def contents(self) -> str:
        """How much of its documents each part has, in words; empty for one text."""
        return ""
