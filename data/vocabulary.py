"""Characters to token ids and back."""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

from runs.files import write_json

PAD, MASK = "[PAD]", "[MASK]"
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")  # all but tab and line feed; lone surrogates


class Vocabulary:
    """The sorted characters of a corpus, then the special tokens.

    Character ids come first: `ids < n_ordinary` separates characters from special tokens. Id 0 is a real character (the
    newline in most texts), not padding.
    """

    def __init__(self, characters: Iterable[str], special_tokens: Iterable[str] = (PAD, MASK)):
        """`special_tokens` include `[PAD]` and `[MASK]`."""
        self.characters = sorted(set(characters))
        self.special_tokens = list(special_tokens)
        self.n_ordinary = len(self.characters)
        self.n_tokens = self.n_ordinary + len(self.special_tokens)
        self._id_of = {token: i for i, token in enumerate(self.characters + self.special_tokens)}
        self.padding_token, self.mask_token = self.id_of(PAD), self.id_of(MASK)

    def id_of(self, token: str) -> int:
        """The id of one character or special token. Raises KeyError for any other."""
        return self._id_of[token]

    def encode(self, text: str) -> torch.Tensor:
        """Token ids `[len(text)]` (int64) of a text without special tokens.

        Raises ValueError, naming the first unknown character.
        """
        # One table lookup for the whole text, without a Python loop.
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        id_of_code = np.full(sys.maxunicode + 1, -1)
        id_of_code[[ord(character) for character in self.characters]] = np.arange(self.n_ordinary)
        ids = id_of_code[codes]
        if (ids < 0).any():
            raise ValueError(f"the character {text[(ids < 0).argmax()]!r} is not in the vocabulary")
        return torch.from_numpy(ids)

    def decode(self, ids: torch.Tensor | Iterable[int]) -> str:
        """The text of token ids; special tokens appear by name, such as `[MASK]`."""
        tokens = self.characters + self.special_tokens
        return "".join(tokens[int(i)] for i in ids)

    def save(self, path: Path) -> None:
        """Write the vocabulary as JSON. Raises OSError."""
        write_json(path, {"characters": self.characters, "special_tokens": self.special_tokens})


def printable(text: str) -> str:
    """A text of the corpus for a terminal: control characters, which could command it, become escapes like \\x1b."""
    return CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
