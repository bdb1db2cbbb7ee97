"""Chooses the vocabulary by `data.tokens`, or by the vocabulary.json of an earlier run."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from data.corpus import Corpus
from data.tokens import BPE, BYTES, CHARACTERS, CUSTOM, SUBWORDS
from data.tokens.bpe import bpe
from data.tokens.bytes import ByteVocabulary
from data.tokens.custom import CustomVocabulary
from data.tokens.errors import TokensError
from data.tokens.subwords import SubwordVocabulary, read_tokenizer
from data.vocabulary import MASK, PAD, Vocabulary

MUCH = 0.01  # of a text
# characters of a text from which the changes of its tokenizer are learned
SAMPLE = 1_000_000


def vocabulary_of(
    tokens: str,
    corpus: Corpus,
    special_tokens: Iterable[str],
    announce: Callable[[str], None],
) -> Vocabulary:
    """The vocabulary of bytes or subwords for a corpus.

    `special_tokens` are those besides `[PAD]`, `[MASK]` and `[UNK]`. Raises TokensError.
    """
    special_tokens = (PAD, MASK, *special_tokens)
    if tokens == BYTES:
        return ByteVocabulary(special_tokens)

    match = BPE.fullmatch(tokens)
    if not match:
        return vocabulary_of_tokenizer(read_tokenizer(tokens), special_tokens, corpus)

    size = int(match[1])
    vocabulary = SubwordVocabulary(bpe(corpus, size, announce), special_tokens)
    n = vocabulary.n_ordinary
    if n < size:
        announce(
            f"data.tokens={tokens}: the text has only {n:,} tokens that are frequent"
        )

    return vocabulary


def vocabulary_of_tokenizer(
    tokenizer: Mapping[str, Any], special_tokens: Iterable[str], corpus: Corpus
) -> SubwordVocabulary:
    """The vocabulary of a tokenizer.json. What it changes in the corpus is learned from a part."""
    vocabulary = SubwordVocabulary(tokenizer, special_tokens)
    learned = vocabulary.changes_in(corpus.training[:SAMPLE])
    if learned is None:
        return vocabulary

    return SubwordVocabulary(tokenizer, special_tokens, learned)


def share_lost(vocabulary: Vocabulary, text: str) -> str:
    """How much of a text the vocabulary loses, in words; empty if nothing."""
    sample = text[:SAMPLE]
    n_unknown, n_vanished = vocabulary.lost(sample)
    parts = []
    if n_unknown:
        parts.append(f"{n_unknown / len(sample):.2%} become [UNK]")
    if n_vanished:
        parts.append(f"{n_vanished / len(sample):.2%} have no token and vanish")

    if not parts:
        return ""
    line = "of the characters of the text, " + " and ".join(parts)
    if n_unknown + n_vanished > MUCH * len(sample):
        line += ": data.tokens=bytes and bpe:N lose none"

    return line


def load_vocabulary(
    description: Mapping[str, Any], tokenizer: Any = None
) -> Vocabulary:
    """The vocabulary that a run has saved as vocabulary.json. Raises TokensError.

    If its tokens are custom, `tokenizer` is the user's, which `description["source"]` names.
    """
    tokens = description.get("tokens", CHARACTERS)
    special_tokens = description["special_tokens"]
    if tokens == BYTES:
        return ByteVocabulary(special_tokens)
    if tokens == SUBWORDS:
        return SubwordVocabulary(
            description["tokenizer"], special_tokens, description.get("learned")
        )
    if tokens == CUSTOM:
        if tokenizer is None:
            raise TokensError(
                "its tokens are custom, but the run has no tokenizer of the user's"
            )
        return CustomVocabulary(tokenizer, description["source"], special_tokens)

    return Vocabulary(description["characters"], special_tokens)
