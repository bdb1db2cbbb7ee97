"""Texts with known properties: independent random tokens, or random words for a tokenizer, in
windows of any length; and what a target made of them."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from auditing.masks.tokens import TokenIds
from auditing.statistics import Array

SHORTEST = 8  # tokens of a window with a special token inside
LONGEST_WORD = 3  # in pieces of the vocabulary, joined
N_WORDS = 4_000  # different words of a text for a tokenizer
# of WordPiece, byte-level BPE and SentencePiece
PREFIXES = ("##", "\u0120", "\u2581", "@@")


@dataclass(frozen=True)
class Text:
    """Windows of ids. `words` numbers the words of each window, -1 outside of words; None if words
    are unknown."""

    ids: Array  # [n_windows, width] int64
    real: Array  # [n_windows, width] bool: not padding
    words: Array | None = None  # [n_windows, width]
    # [n_windows, width, 2] begin and end of each token in its text
    offsets: Array | None = None


@dataclass(frozen=True)
class Masked:
    """The inputs and labels that a target made of some windows."""

    inputs: Array  # [batch, width] int64
    labels: Array  # [batch, width] int64
    extras: dict[str, Array]  # what else the target returns, of any shape
    dtype: str = "int64"  # of the labels
    is_modified: bool = False  # whether the target changed its argument's ids in place
    is_reused: bool = False  # whether the call changed what the previous call returned
    # A hash of the state of each global generator after the call.
    generators: dict[str, int] = field(default_factory=dict)

    @property
    def arrays(self) -> dict[str, Array]:
        """All arrays by name."""
        return {"inputs": self.inputs, "labels": self.labels} | self.extras

    @property
    def columns(self) -> dict[str, Array]:
        """The extras in the shape of the inputs."""
        shape = self.inputs.shape
        return {
            name: array for name, array in self.extras.items() if array.shape == shape
        }


def lengths_of(
    n_windows: int, width: int, is_ragged: bool, rng: np.random.Generator
) -> Array:
    """The number of tokens per window, `[n_windows]`: `width`, or from 3 up; every eighth window is
    full."""
    lengths = rng.integers(3 if is_ragged else width, width + 1, n_windows)
    lengths[::8] = width
    return lengths


def abstract_text(
    tokens: TokenIds, n_windows: int, width: int, is_ragged: bool, seed: int
) -> Text:
    """Ordinary ids, independent and equally likely. Every other window begins and ends with special
    tokens, and every fourth has another one inside, unless it is short, so that sparing the edges
    is not sparing special tokens."""
    rng = np.random.default_rng([seed, n_windows, width])
    ids = rng.choice(tokens.ordinary, (n_windows, width)).astype(np.int64)
    lengths = lengths_of(n_windows, width, is_ragged, rng)
    real = np.arange(width) < lengths[:, None]
    if tokens.edges:
        begin, end = tokens.edges
        ids[::2, 0] = begin
        ids[np.arange(0, n_windows, 2), lengths[::2] - 1] = end
        inside = rng.integers(1, lengths[::4] - 1)
        # A short window would keep too few ordinary tokens to be found in the text.
        is_long = lengths[::4] >= SHORTEST
        ids[np.arange(0, n_windows, 4)[is_long], inside[is_long]] = end
    if tokens.padding is not None:
        ids[~real] = tokens.padding
    return Text(ids, real)


def tokenized_text(
    tokenizer: Any,
    words: list[str],
    tokens: TokenIds,
    n_windows: int,
    width: int,
    is_ragged: bool,
    seed: int,
) -> Text:
    """Random words, tokenized and cut to the windows' lengths. In every fourth window, the token
    that ends windows takes the place of a word inside, as between two sentences."""
    rng = np.random.default_rng([seed, n_windows, width])
    lengths = lengths_of(n_windows, width, is_ragged, rng)
    shape = (n_windows, width)
    ids = np.full(shape, tokens.padding or 0, dtype=np.int64)
    word_of = np.full(shape, -1)
    offsets = np.zeros((*shape, 2), dtype=np.int64)
    drawn = rng.integers(len(words), size=shape)
    pads_left = getattr(tokenizer, "padding_side", "right") == "left"
    is_fast = bool(getattr(tokenizer, "is_fast", False))
    real = np.arange(width) < lengths[:, None]
    if pads_left:
        real = real[:, ::-1]

    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        texts = []
        for row in drawn[rows]:
            texts.append(" ".join(words[i] for i in row))
        encoded = tokenizer(
            texts, truncation=True, max_length=length, return_offsets_mapping=is_fast
        )
        columns = slice(width - length, width) if pads_left else slice(0, length)
        ids[rows, columns] = encoded["input_ids"]
        if is_fast:
            offsets[rows, columns] = encoded["offset_mapping"]
            for i, row in enumerate(rows):
                numbers = encoded.word_ids(i)
                word_of[row, columns] = [
                    -1 if word is None else word for word in numbers
                ]

    if not is_fast:
        return Text(ids, real)
    end = ids[0, columns][-1]  # [SEP], if the tokenizer ends its windows with it
    if end in tokens.special:
        is_alone = words_of_one_token(word_of)
        rows = np.flatnonzero(is_alone.any(1) & (np.arange(n_windows) % 4 == 0))
        draws = rng.random((len(rows), width - 2))
        places = 1 + np.where(is_alone[rows], draws, -1).argmax(1)
        ids[rows, places] = end
        word_of[rows, places] = -1
        offsets[rows, places] = 0

    return Text(ids, real, word_of, offsets)


def words_of_one_token(word_of: Array) -> Array:
    """Where a word of one token stands, `[n_windows, width - 2]`, without the edges of windows."""
    middle = word_of[:, 1:-1]
    return (middle >= 0) & (middle != word_of[:, :-2]) & (middle != word_of[:, 2:])


def random_words(
    tokenizer: Any, tokens: TokenIds, rng: np.random.Generator
) -> list[str]:
    """Words of one to three pieces of the vocabulary, only letters, that the tokenizer does not map
    to [UNK]."""
    pieces = []

    for id in rng.permutation(tokens.ordinary)[: 4 * N_WORDS]:
        piece = str(tokenizer.convert_ids_to_tokens(int(id))).removesuffix("</w>")
        for prefix in PREFIXES:
            piece = piece.removeprefix(prefix)
        if piece.isalpha() and piece.isascii():
            pieces.append(piece)

    if not pieces:
        return []
    counts = rng.integers(1, LONGEST_WORD + 1, N_WORDS)
    words = []
    for count in counts:
        numbers = rng.integers(len(pieces), size=count)
        words.append("".join(pieces[i] for i in numbers))

    encoded = tokenizer(words, add_special_tokens=False)["input_ids"]
    known = []
    for word, ids in zip(words, encoded, strict=True):
        if ids and tokens.unknown not in ids:
            known.append(word)

    return known
