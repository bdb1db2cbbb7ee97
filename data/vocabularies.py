"""The vocabularies that `data.tokens` selects."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from data.bpe import bpe
from data.byte_tokens import ByteVocabulary
from data.corpus import Corpus, CorpusError
from data.kinds import BPE, BYTES, CHARACTERS
from data.subwords import SubwordVocabulary, read_tokenizer
from data.vocabulary import MASK, PAD, UNK, Vocabulary

MOST_CHARACTERS = 30_000  # three times as many as Chinese texts use; a step on a CPU would take seconds


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

    Characters whose share of the corpus is below `unknown_below` become `[UNK]`. Raises CorpusError if none is left, or
    if there are more than MOST_CHARACTERS.
    """
    counts = corpus.counts
    least = unknown_below * counts.total()
    characters = {c for c in counts if counts[c] >= least}
    if unknown_below and not characters:
        raise CorpusError(f"data.unknown_below={unknown_below:g}: no character has such a share of the text")
    kept = {*characters, *extra}
    if len(kept) > MOST_CHARACTERS:
        raise CorpusError(
            f"data.corpus: {len(kept):,} different characters are too many tokens (at most {MOST_CHARACTERS:,}): set"
            " data.tokens=bytes or bpe:N, or data.unknown_below=1e-5 to read rare characters as [UNK]"
        )
    unknown = (UNK,) if not counts.keys() <= kept else ()
    return Vocabulary(kept, (PAD, MASK, *unknown, *further))


def load_vocabulary(description: Mapping[str, Any]) -> Vocabulary:
    """The vocabulary that a run has saved as vocabulary.json. Raises TokensError."""
    tokens, special = description.get("tokens", CHARACTERS), description["special_tokens"]
    if tokens == BYTES:
        return ByteVocabulary(special)
    if tokens == SubwordVocabulary.tokens:
        return SubwordVocabulary(description["tokenizer"], special)
    return Vocabulary(description["characters"], special)
