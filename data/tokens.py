"""The vocabularies that `data.tokens` selects."""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from data.bpe import bpe
from data.byte_tokens import ByteVocabulary
from data.corpus import Corpus, CorpusError
from data.subwords import SubwordVocabulary, read_tokenizer
from data.vocabulary import MASK, PAD, UNK, Vocabulary

CHARACTERS, BYTES = "characters", "bytes"
BPE = re.compile(r"bpe:(.*)", re.DOTALL)


def vocabulary_of(tokens: str, corpus: Corpus, further: Iterable[str], announce: Callable[[str], None]) -> Vocabulary:
    """The vocabulary of bytes or subwords for a corpus; `further` are special tokens besides `[PAD]` and `[MASK]`.

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
                f"data.tokens={tokens}: the text has only {vocabulary.n_ordinary:,} tokens, no other pair is frequent"
            )
        return vocabulary
    return SubwordVocabulary(read_tokenizer(Path(tokens)), special)


def characters_of(corpus: Corpus, extra: str, unknown_below: float, further: Iterable[str]) -> Vocabulary:
    """The vocabulary of a corpus's characters and `extra` ones.

    Characters whose share of the corpus is below `unknown_below` become `[UNK]`. Raises CorpusError if none is left.
    """
    characters = {*corpus.characters}
    if unknown_below:
        counts = corpus.counts
        characters = {c for c in characters if counts[c] >= unknown_below * counts.total()}
        if not characters:
            raise CorpusError(f"data.unknown_below={unknown_below:g}: no character has such a share of the text")
    kept = {*characters, *extra}
    unknown = (UNK,) if unknown_below and not {*corpus.characters} <= kept else ()
    return Vocabulary(kept, (PAD, MASK, *unknown, *further))


def load_vocabulary(description: Mapping[str, Any]) -> Vocabulary:
    """The vocabulary that a run has saved as vocabulary.json. Raises TokensError."""
    tokens, special = description.get("tokens", CHARACTERS), description["special_tokens"]
    if tokens == BYTES:
        return ByteVocabulary(special)
    if tokens == SubwordVocabulary.tokens:
        return SubwordVocabulary(description["tokenizer"], special)
    return Vocabulary(description["characters"], special)
