"""Vocabularies whose tokens are pieces of UTF-8, and the bytes as tokens."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch

from data.tokens import BYTES
from data.vocabulary import MASK, PAD, REPLACEMENT, Vocabulary


class PiecesOfUtf8(Vocabulary):
    """A vocabulary whose ordinary tokens are any bytes of UTF-8: parts of characters, words, spaces
    before words."""

    is_characters = False
    lengths: torch.Tensor

    def number_tokens(
        self, texts: Mapping[str, bytes], special_tokens: Iterable[str]
    ) -> None:
        super().number_tokens(texts, special_tokens)
        begins = []
        for surface in self.surfaces:
            begins.append(sum(byte & 0xC0 != 0x80 for byte in surface))

        begins += [0] * len(self.special_tokens)
        self.lengths = torch.tensor(begins, dtype=torch.float64)
        self.has_spaces_in_words = any(
            surface.startswith(b" ") and surface.strip() for surface in self.surfaces
        )
        # [n_tokens] in UTF-8
        self._contents = self.surfaces + [
            token.encode() for token in self.shown_special
        ]
        n_special = len(self.special_tokens)
        self._in_units = self.surfaces + [REPLACEMENT.encode()] * n_special

    def decode(self, ids: torch.Tensor | Iterable[int]) -> str:
        """The text of token ids; special tokens appear by name, but `[UNK]` and bytes that are not
        UTF-8 as U+FFFD."""
        return _decoded(b"".join(self._content(ids)))[0]

    def encoded(self, text: str) -> tuple[torch.Tensor, torch.Tensor]:
        ids = self.encode(text)
        return ids, self.text_of(ids)[1]

    def text_of(
        self, ids: torch.Tensor, original: str | None = None
    ) -> tuple[str, torch.Tensor]:
        """The text of the tokens, which may differ from `original`, because a tokenizer of a user's
        own may drop spaces or capitals.

        A token belongs to its first character that is not a space, such as t in " the"; or else to
        its first.
        """
        content = [self._in_units[i] for i in ids.tolist()]
        text, char_of_byte = _decoded(b"".join(content))
        n_bytes = np.fromiter(map(len, content), dtype=np.int64, count=len(content))
        begins = n_bytes.cumsum() - n_bytes + self._leading_spaces[ids.cpu().numpy()]
        if not len(char_of_byte):
            return text, torch.zeros(len(ids), dtype=torch.int64)

        return text, torch.from_numpy(
            char_of_byte[begins.clip(max=len(char_of_byte) - 1)]
        )

    def lost(self, text: str) -> tuple[int, int]:
        """No character is unknown; those vanish that are not in the decoded tokens."""
        n_before = sum(not character.isspace() for character in text)
        decoded = self.decode(self.encode(text))
        n_after = sum(not character.isspace() for character in decoded)
        return 0, max(0, n_before - n_after)

    def _content(self, ids: torch.Tensor | Iterable[int]) -> list[bytes]:
        listed = ids.tolist() if isinstance(ids, torch.Tensor) else ids
        return [self._contents[i] for i in listed]

    @cached_property
    def _leading_spaces(self) -> np.ndarray:
        """The bytes of space before the first other character of each token, `[n_tokens]`; 0 if all
        of it is space."""
        n_bytes = np.zeros(self.n_tokens, dtype=np.int64)
        for i, surface in enumerate(self.surfaces):
            text = surface.decode("utf-8", "surrogateescape")
            stripped = text.lstrip()
            if stripped:
                n_bytes[i] = len(text.removesuffix(stripped).encode())

        return n_bytes


def _decoded(content: bytes) -> tuple[str, np.ndarray]:
    """The text of some bytes, each U+FFFD if it is not UTF-8; and the offset of each byte's
    character in it."""
    text = content.decode("utf-8", "surrogateescape")
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    escaped = (codes >= 0xDC80) & (codes <= 0xDCFF)
    n_bytes = np.where(
        escaped, 1, 1 + (codes >= 0x80) + (codes >= 0x800) + (codes >= 0x10000)
    )
    if escaped.any():
        codes = np.where(escaped, ord(REPLACEMENT), codes)
        text = codes.astype("<u4").tobytes().decode("utf-32-le")

    return text, np.repeat(np.arange(len(codes)), n_bytes)


class ByteVocabulary(PiecesOfUtf8):
    """The 256 bytes, whose ids are their values, then the special tokens."""

    tokens = BYTES

    def __init__(self, special_tokens: Iterable[str] = (PAD, MASK)):
        """`special_tokens` include `[PAD]` and `[MASK]`."""
        texts = {f"<0x{byte:02X}>": bytes([byte]) for byte in range(256)}
        self.number_tokens(texts, special_tokens)

    def encode(self, text: str) -> torch.Tensor:
        """Token ids (int64) of a text, one per byte of its UTF-8. Raises ValueError for a lone
        surrogate."""
        return torch.from_numpy(
            np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int64)
        )

    def encode_batch(self, texts: Sequence[str]) -> list[torch.Tensor]:
        lengths = [len(text.encode()) for text in texts]
        return list(self.encode("".join(texts)).split(lengths))

    def description(self) -> dict[str, Any]:
        return {"tokens": self.tokens, "special_tokens": self.special_tokens}
