"""Vocabularies other than all characters of the text."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from configs.branch import is_reference
from configs.hugging_face import ARCHITECTURE
from data.tokens import CHARACTERS
from data.tokens.choose import vocabulary_of, vocabulary_of_tokenizer
from data.tokens.subwords import renumbered
from data.vocabulary import Vocabulary, characters_of

if TYPE_CHECKING:
    from configs.data import DataConfigs


def other_vocabulary(
    c: "DataConfigs", special_tokens: tuple[str, ...], announce: Callable[[str], None]
) -> Vocabulary:
    """The vocabulary that `data.tokens` asks for."""
    if c.tokens == CHARACTERS:
        return characters_of(
            c.loaded.counts, c.extra_characters, c.unknown_below, special_tokens
        )
    if is_reference(c.tokens):
        from configs.own_code import own_vocabulary

        return own_vocabulary(c.tokens, special_tokens)
    if c.root().value_of("model.architecture") == ARCHITECTURE:
        checkpoint = c.root().model.checkpoint
        tokenizer = renumbered(checkpoint.content)
        return vocabulary_of_tokenizer(tokenizer, checkpoint.special_rows, c.loaded)
    return vocabulary_of(c.tokens, c.loaded, special_tokens, announce)
