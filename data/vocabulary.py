"""Characters to token ids and back."""

import json
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

PAD, MASK = "[PAD]", "[MASK]"


class Vocabulary:
    """The sorted characters of a corpus, then the special tokens.

    Character ids come first, so `ids < n_chars` tells a character from a special token. Id 0 is a real
    character (in most texts the newline), not padding.
    """

    def __init__(self, characters: Iterable[str], special_tokens: Iterable[str] = (PAD, MASK)):
        self.characters = sorted(set(characters))
        self.special_tokens = list(special_tokens)
        self.n_chars = len(self.characters)
        self.n_tokens = self.n_chars + len(self.special_tokens)
        self._id_of = {token: i for i, token in enumerate(self.characters + self.special_tokens)}

    def id_of(self, token: str) -> int:
        """The id of one character or special token. Raises KeyError where it is not known."""
        return self._id_of[token]

    @property
    def mask_token(self) -> int:
        return self._id_of[MASK]

    @property
    def padding_token(self) -> int:
        return self._id_of[PAD]

    def encode(self, text: str) -> torch.Tensor:
        """Token ids `[len(text)]` (int64) of a text without special tokens.

        Raises ValueError, naming the first character that is not known.
        """
        # NumPy sees the text as code points: one lookup for the whole text, no Python loop.
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        known = np.array([ord(c) for c in self.characters], dtype=np.uint32)
        ids = np.searchsorted(known, codes)
        found = (ids < len(known)) & (known[np.minimum(ids, len(known) - 1)] == codes)
        if not found.all():
            raise ValueError(f"the character {chr(codes[~found][0])!r} is not in the vocabulary")
        return torch.from_numpy(ids.astype(np.int64))

    def decode(self, ids: torch.Tensor | Iterable[int]) -> str:
        """The text of token ids; special tokens appear by their names, such as `[MASK]`."""
        tokens = self.characters + self.special_tokens
        return "".join(tokens[int(i)] for i in ids)

    def save(self, path: Path) -> None:
        """Write the vocabulary as JSON, under a temporary name first."""
        temporary = path.with_name(path.name + ".tmp")
        content = {"characters": self.characters, "special_tokens": self.special_tokens}
        temporary.write_text(json.dumps(content), encoding="utf-8")
        os.replace(temporary, path)

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        """Read what `save` wrote."""
        content = json.loads(path.read_text(encoding="utf-8"))
        return cls(content["characters"], content["special_tokens"])
