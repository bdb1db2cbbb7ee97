"""The vocabularies of other tokens than characters, and those of earlier runs."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from data.corpus import Corpus
from data.tokens.bpe import bpe
from data.tokens.byte_tokens import ByteVocabulary
from data.tokens.names import BPE, BYTES, CHARACTERS
from data.tokens.subwords import SubwordVocabulary, read_tokenizer
from data.vocabulary import MASK, PAD, Vocabulary


def vocabulary_of(
    tokens: str, corpus: Corpus, further: Iterable[str], announce: Callable[[str], None]
) -> Vocabulary:
    """The vocabulary of bytes or subwords for a corpus; `further` are special tokens besides
    `[PAD]` and `[MASK]`.

    Raises TokensError.
    """
    special = (PAD, MASK, *further)
    if tokens == BYTES:
        return ByteVocabulary(special)
    if match := BPE.fullmatch(tokens):
        n = int(match[1])
        vocabulary = SubwordVocabulary(bpe(corpus, n, announce), special)
        if vocabulary.n_ordinary < n:
            announce(
                f"data.tokens={tokens}: the text has only {vocabulary.n_ordinary:,} tokens that are frequent"
            )
        return vocabulary
    return SubwordVocabulary(read_tokenizer(Path(tokens)), special)


def load_vocabulary(description: Mapping[str, Any]) -> Vocabulary:
    """The vocabulary that a run has saved as vocabulary.json. Raises TokensError."""
    tokens, special = description.get("tokens", CHARACTERS), description["special_tokens"]
    if tokens == BYTES:
        return ByteVocabulary(special)
    if tokens == SubwordVocabulary.tokens:
        return SubwordVocabulary(description["tokenizer"], special)
    return Vocabulary(description["characters"], special)
