"""Text to token ids and back. Here a token is a character; `data.tokens.vocabularies` has the others."""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch

from data.text.sources import CorpusError

PAD, MASK, UNK = "[PAD]", "[MASK]", "[UNK]"
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"  # the text of [UNK]
# three times as many as Chinese texts use; with more, a step on a CPU takes seconds
MOST_CHARACTERS = 30_000


class Vocabulary:
    """The sorted characters of a corpus, then the special tokens.

    The ids of ordinary tokens, here characters, come first: `ids < n_ordinary` separates them from
    special tokens. Id 0 is a real character (the newline in most texts), not padding. `[UNK]`, if
    it exists, stands for any other character.
    """

    tokens: ClassVar[str] = "characters"  # the kind of the ordinary tokens, as in vocabulary.json
    is_characters: ClassVar[bool] = True  # whether each ordinary token is a character
    # [n_tokens] int64, characters that begin in each token; None: always one
    lengths: torch.Tensor | None = None

    def __init__(self, characters: Iterable[str], special_tokens: Iterable[str] = (PAD, MASK)):
        """`special_tokens` include `[PAD]` and `[MASK]`."""
        self.characters = sorted(set(characters))
        self._number(
            self.characters,
            [c.encode("utf-8", "surrogatepass") for c in self.characters],
            special_tokens,
        )

    def _number(
        self, ordinary: Sequence[str], surfaces: Sequence[bytes], special_tokens: Iterable[str]
    ) -> None:
        """Number the tokens. `ordinary` are unique names, `surfaces` the text of each in UTF-8."""
        self.ordinary, self.surfaces = list(ordinary), list(surfaces)
        self.special_tokens = list(special_tokens)
        self.shown_special = [
            REPLACEMENT if token == UNK else token for token in self.special_tokens
        ]
        self.n_ordinary = len(self.ordinary)
        self.n_tokens = self.n_ordinary + len(self.special_tokens)
        self._id_of = {token: i for i, token in enumerate(self.ordinary + self.special_tokens)}
        self.padding_token, self.mask_token = self.id_of(PAD), self.id_of(MASK)
        self.unknown_token = self._id_of.get(UNK)  # None: every text has ids
        # by `encode`
        self.n_ids_in_text = (
            self.n_ordinary if self.unknown_token is None else self.unknown_token + 1
        )

    def id_of(self, token: str) -> int:
        """The id of one character or special token. Raises KeyError for any other."""
        return self._id_of[token]

    def encode(self, text: str) -> torch.Tensor:
        """Token ids (int64) of a text without special tokens; one per character, `[len(text)]`.

        Raises ValueError, naming the first unknown character, if there is no `[UNK]`.
        """
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        ids = self._id_of_code[codes]
        if (ids < 0).any():
            raise ValueError(f"the character {text[(ids < 0).argmax()]!r} is not in the vocabulary")
        return torch.from_numpy(ids)

    @cached_property
    def _id_of_code(self) -> np.ndarray:
        """The id of each code point; for those that the vocabulary does not have `[UNK]`, or -1
        without it."""
        id_of_code = np.full(
            sys.maxunicode + 1, -1 if self.unknown_token is None else self.unknown_token
        )
        id_of_code[[ord(character) for character in self.characters]] = np.arange(self.n_ordinary)
        return id_of_code

    def decode(self, ids: torch.Tensor | Iterable[int]) -> str:
        """The text of token ids; special tokens appear by name, such as `[MASK]`, but `[UNK]` as
        U+FFFD."""
        tokens = self.characters + self.shown_special
        return "".join(map(tokens.__getitem__, torch.as_tensor(ids).tolist()))

    def text_of(
        self, ids: torch.Tensor, original: str | None = None
    ) -> tuple[str, torch.Tensor | None]:
        """The text of `ids` `[n]`, which masking strategies cut into units; `original` is that text
        if it is known. And for each token the offset of the character that decides its unit, `[n]`;
        None if token i is character i."""
        return self.decode(ids) if original is None else original, None

    def description(self) -> dict[str, Any]:
        """The content of vocabulary.json, from which `data.tokens.vocabularies.load_vocabulary` makes the
        vocabulary again."""
        return {"characters": self.characters, "special_tokens": self.special_tokens}


def characters_of(
    counts: Counter[str], extra: str, unknown_below: float, further: Iterable[str]
) -> Vocabulary:
    """The vocabulary of the characters that a corpus `counts`, and of `extra` ones.

    Characters whose share of the corpus is below `unknown_below` become `[UNK]`. Raises CorpusError
    if none is left, or if there are more than MOST_CHARACTERS.
    """
    least = unknown_below * counts.total()
    characters = {c for c in counts if counts[c] >= least}
    if unknown_below and not characters:
        raise CorpusError(
            f"data.unknown_below={unknown_below:g}: no character has such a share of the text"
        )
    kept = {*characters, *extra}
    if len(kept) > MOST_CHARACTERS:
        raise CorpusError(
            f"data.corpus: {len(kept):,} different characters are too many tokens (at most {MOST_CHARACTERS:,}): set"
            " data.tokens=bytes or bpe:N, or data.unknown_below=1e-5 to read rare characters as [UNK]"
        )
    unknown = (UNK,) if not counts.keys() <= kept else ()
    return Vocabulary(kept, (PAD, MASK, *unknown, *further))
