"""Text to token ids and back. Here a token is a character; `data.tokens` has the others.

A vocabulary numbers its tokens with `number_tokens`, and defines `encode`, from text to ids below
`n_ids_in_text`, and `description`. The rest follows from the text of each token: for characters in
`Vocabulary`, for any other tokens in `data.tokens.bytes.PiecesOfUtf8`. A tokenizer of a user's own
needs less: `data.tokens.custom` says what.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch

from data.text.sources import CorpusError

PAD, MASK, UNK = "[PAD]", "[MASK]", "[UNK]"
CLS, SEP = "[CLS]", "[SEP]"  # in pairs of texts; [SEP] also follows each document
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"  # the text of [UNK]
# three times as many as Chinese texts use; with more, a step on a CPU takes seconds
MOST_CHARACTERS = 30_000


class Vocabulary:
    """The sorted characters of a corpus, then the special tokens.

    The ids of ordinary tokens, here characters, come first: `ids < n_ordinary` separates them from
    special tokens. Id 0 is a real character (the newline in most texts), not padding. `[UNK]`, if
    it exists, stands for any other character.
    """

    tokens = "characters"  # the kind of the ordinary tokens, as in vocabulary.json
    is_characters = True  # whether each ordinary token is a character
    has_spaces_in_words = False  # whether tokens such as " the" exist
    # [n_tokens] float64, mean number of characters that begin in each token; None: always one
    lengths: torch.Tensor | None = None

    def __init__(
        self, characters: Iterable[str], special_tokens: Iterable[str] = (PAD, MASK)
    ):
        """`special_tokens` include `[PAD]` and `[MASK]`."""
        self.characters = sorted(set(characters))
        texts = {c: c.encode("utf-8", "surrogatepass") for c in self.characters}
        self.number_tokens(texts, special_tokens)

    def number_tokens(
        self, texts: Mapping[str, bytes], special_tokens: Iterable[str]
    ) -> None:
        """Number the tokens. `texts` are the ordinary tokens by name, with their text in UTF-8."""
        self.ordinary = list(texts)
        self.surfaces = list(texts.values())
        self.special_tokens = list(special_tokens)
        # in decoded text
        self.shown_special = [
            REPLACEMENT if token == UNK else token for token in self.special_tokens
        ]
        tokens = self.ordinary + self.special_tokens
        self.n_ordinary = len(self.ordinary)
        self.n_tokens = len(tokens)
        self._id_of = {token: i for i, token in enumerate(tokens)}
        self.padding_token = self.id_of(PAD)
        self.mask_token = self.id_of(MASK)
        self.unknown_token = self._id_of.get(UNK)  # None: every text has ids
        self.n_ids_in_text = self.n_ordinary
        if self.unknown_token is not None:
            self.n_ids_in_text = self.unknown_token + 1

    def id_of(self, token: str) -> int:
        """The id of one character or special token. Raises KeyError for any other."""
        return self._id_of[token]

    def encode(self, text: str) -> torch.Tensor:
        """Token ids (int64) of a text without special tokens; one per character, `[len(text)]`.

        Raises ValueError, naming the first unknown character, if there is no `[UNK]`.
        """
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        ids = self._id_of_code[codes]
        if (ids < 0).any():
            unknown = text[(ids < 0).argmax()]
            raise ValueError(f"the character {unknown!r} is not in the vocabulary")
        return torch.from_numpy(ids)

    def encode_batch(self, texts: Sequence[str]) -> list[torch.Tensor]:
        """Token ids of each text, as `encode` gives them."""
        lengths = [len(text) for text in texts]
        return list(self.encode("".join(texts)).split(lengths))

    @cached_property
    def _id_of_code(self) -> np.ndarray:
        """The id of each code point; for those that the vocabulary does not have `[UNK]`, or -1
        without it."""
        id_of_code = np.full(sys.maxunicode + 1, self._id_of.get(UNK, -1))
        codes = [ord(character) for character in self.characters]
        id_of_code[codes] = np.arange(self.n_ordinary)
        return id_of_code

    def decode(self, ids: torch.Tensor | Iterable[int]) -> str:
        """The text of token ids; special tokens appear by name, such as `[MASK]`, but `[UNK]` as
        U+FFFD."""
        tokens = self.characters + self.shown_special
        return "".join(map(tokens.__getitem__, torch.as_tensor(ids).tolist()))

    def encoded(self, text: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Token ids of a text, and the offset of the character in it at which each token begins,
        both `[n]`: of the first that is not a space, if the token has one."""
        ids = self.encode(text)
        return ids, torch.arange(len(ids))

    def lost(self, text: str) -> tuple[int, int]:
        """How many characters of a text become `[UNK]`, and how many, apart from spaces, have no
        token at all."""
        known = set(self.characters)
        return sum(character not in known for character in text), 0

    def text_of(
        self, ids: torch.Tensor, original: str | None = None
    ) -> tuple[str, torch.Tensor | None]:
        """The text of `ids` `[n]`, which masking strategies cut into units; `original` is that text
        if it is known. A special token is U+FFFD, no part of a word.

        Also returns the offset of the character that decides the unit of each token, `[n]`; None if
        token i is character i.
        """
        if original is not None:
            return original, None
        tokens = self.characters + [REPLACEMENT] * len(self.special_tokens)
        return "".join(map(tokens.__getitem__, ids.tolist())), None

    def description(self) -> dict[str, Any]:
        """The content of vocabulary.json, from which `data.tokens.choose.load_vocabulary` makes the
        same vocabulary."""
        return {"characters": self.characters, "special_tokens": self.special_tokens}


def characters_of(
    counts: Counter[str],
    extra: str,
    unknown_below: float,
    special_tokens: Iterable[str],
) -> Vocabulary:
    """The vocabulary of the characters that a corpus `counts`, and of `extra` ones.

    Characters whose share of the corpus is below `unknown_below` become `[UNK]`. `special_tokens`
    are those besides `[PAD]`, `[MASK]` and `[UNK]`. Raises CorpusError if no character is left, or
    if there are more than MOST_CHARACTERS.
    """
    least = unknown_below * counts.total()
    characters = {c for c in counts if counts[c] >= least}
    if unknown_below and not characters:
        raise CorpusError(
            f"data.unknown_below={unknown_below:g}: no character has such a share of the text"
        )

    characters |= set(extra)
    if len(characters) > MOST_CHARACTERS:
        raise CorpusError(
            f"data.corpus: {len(characters):,} different characters are too many tokens (at most"
            f" {MOST_CHARACTERS:,}): set data.tokens=bytes or bpe:N, or data.unknown_below=1e-5 to"
            " read rare characters as [UNK]"
        )
    special = [PAD, MASK]
    if not counts.keys() <= characters:
        special.append(UNK)
    return Vocabulary(characters, [*special, *special_tokens])
