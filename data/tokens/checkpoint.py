"""The tokens of a Hugging Face checkpoint: which row of its embedding each of Folio's ids has."""

from collections.abc import Mapping
from typing import Any

from data.tokens.subwords import ids_of, renumbered, unknown_of
from data.vocabulary import UNK, Vocabulary


def special_rows(
    content: Mapping[str, Any], named: Mapping[str, int], n_rows: int
) -> dict[str, int]:
    """The special tokens of a checkpoint with their rows. `content` is its tokenizer.json, and
    `named` are the rows of `[PAD]`, `[MASK]`, `[CLS]` and `[SEP]`.

    Then come the special tokens that Folio does not use, and the rows without a token.
    """
    ids = ids_of(content)
    ordinary = renumbered(content)["model"]["vocab"]
    tokens = [token[0] if isinstance(token, list) else token for token in ordinary]
    special = dict(named)
    if UNK in tokens:
        special[UNK] = ids[unknown_of(content["model"]) or UNK]
    used = {ids[token] for token in tokens if token not in special}
    used.update(special.values())
    # an unused token with a name of Folio's own, such as ModernBERT's [UNK], is a row like others
    names = {i: token for token, i in ids.items() if token not in {UNK, *named}}
    for i in sorted(set(range(n_rows)) - used):
        special[names.get(i, f"[row {i}]")] = i
    return special


def rows_of(
    vocabulary: Vocabulary, content: Mapping[str, Any], special: Mapping[str, int]
) -> list[int]:
    """The row of each id of the vocabulary, `[n_tokens]`, and -1 for a new token; `special` are the
    `special_rows`."""
    rows = {**ids_of(content), **special}
    tokens = [*vocabulary.ordinary, *vocabulary.special_tokens]
    return [rows.get(token, -1) for token in tokens]
