"""Tokens of a tokenizer that a user brings: any object with the attributes of `Tokenizer`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch

from data.tokens import CUSTOM
from data.tokens.bytes import PiecesOfUtf8
from data.tokens.errors import TokensError, as_tokens_error
from data.vocabulary import MASK, PAD


class Tokenizer(Protocol):
    """All that a tokenizer needs. Folio adds the special tokens."""

    # the text of each token, spaces included; its index is its id
    tokens: Sequence[str | bytes]

    def encode(self, text: str) -> Sequence[int] | torch.Tensor:
        """The ids of a text."""
        ...


class CustomVocabulary(PiecesOfUtf8):
    """The tokens of a user's tokenizer, then the special tokens."""

    tokens = CUSTOM

    def __init__(
        self,
        tokenizer: Tokenizer,
        source: Mapping[str, str],
        special_tokens: Iterable[str] = (PAD, MASK),
    ):
        """`source` identifies the tokenizer, for example by its reference and the hash of its file.

        Raises TokensError if a token is neither str nor bytes, or occurs twice.
        """
        self.source = dict(source)
        self._tokenizer = tokenizer
        special_tokens = list(special_tokens)
        texts = {}
        for token in tokenizer.tokens:
            if not isinstance(token, str | bytes):
                raise TokensError(
                    f"data.tokens: the token {token!r} is neither str nor bytes"
                )
            text = token.encode("utf-8", "replace") if isinstance(token, str) else token
            name = text.decode("utf-8", "backslashreplace")
            if name in texts or name in special_tokens:
                raise TokensError(
                    f"data.tokens: the tokenizer has the token {token!r} twice"
                )
            texts[name] = text

        if not texts:
            raise TokensError("data.tokens: the tokenizer has no tokens")

        self.number_tokens(texts, special_tokens)

    def encode(self, text: str) -> torch.Tensor:
        """Token ids (int64) of a text. Raises TokensError if the tokenizer returns other values."""
        returned = self._tokenizer.encode(text)
        with as_tokens_error("data.tokens: encode() returns no list of ids"):
            ids = torch.as_tensor(returned, dtype=torch.int64)

        if ids.ndim != 1 or bool(((ids < 0) | (ids >= self.n_ordinary)).any()):
            raise TokensError(
                f"data.tokens: encode() must return integers from 0 to {self.n_ordinary - 1}"
            )

        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[torch.Tensor]:
        return [self.encode(text) for text in texts]

    def description(self) -> dict[str, Any]:
        return {
            "tokens": CUSTOM,
            "special_tokens": self.special_tokens,
            "source": self.source,
        }
