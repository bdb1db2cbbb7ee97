"""Vocabularies other than all characters of the text, which may lose a part of it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from configs.branch import is_reference
from data.tokens import CHARACTERS
from data.tokens.choose import share_lost, vocabulary_of
from data.vocabulary import Vocabulary, characters_of

if TYPE_CHECKING:
    from configs.data import DataConfigs


def other_vocabulary(
    c: "DataConfigs", special_tokens: tuple[str, ...], announce: Callable[[str], None]
) -> Vocabulary:
    """The vocabulary that `data.tokens` asks for; announces how much of the text it loses."""
    if c.tokens == CHARACTERS:
        made: Vocabulary = characters_of(
            c.loaded.counts, c.extra_characters, c.unknown_below, special_tokens
        )
    elif is_reference(c.tokens):
        from configs.own_code import own_vocabulary

        made = own_vocabulary(c.tokens, special_tokens)
    else:
        made = vocabulary_of(c.tokens, c.loaded, special_tokens, announce)

    lost = share_lost(made, c.loaded.training)
    if lost:
        announce(f"data.tokens={c.tokens}: {lost}")

    return made
