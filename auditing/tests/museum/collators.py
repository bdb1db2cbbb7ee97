"""Bugs of collators with a tokenizer, which knows where words begin, or an attention mask."""

from collections.abc import Callable
from typing import Any

import torch
from transformers import DataCollatorForLanguageModeling

from auditing.tests.museum.exhibit import IGNORED, RATE, Exhibit, Pair, labels_of
from auditing.tests.museum.tokenizers import (
    SYLLABLES,
    WHOLE_WORDS,
    metaspace_pieces,
    word_pieces,
)

Batch = dict[str, torch.Tensor]


class Collator:
    """A masking function of ids and a tokenizer, called as Hugging Face's data collators are: with
    a list of texts."""

    def __init__(self, mask: Callable[..., Pair], tokenizer: Any):
        self.mask = mask
        self.tokenizer = tokenizer

    def __call__(self, examples: list[dict[str, Any]]) -> Batch:
        features = [{"input_ids": example["input_ids"]} for example in examples]
        batch = dict(self.tokenizer.pad(features, return_tensors="pt"))
        batch["input_ids"], batch["labels"] = self.mask(
            batch["input_ids"], self.tokenizer
        )
        return batch


class WholeWordCollator(Collator):
    """Says by its name that it masks whole words."""


class HidingCollator(Collator):
    """The attention mask becomes 0 at masked positions, as if they were padding: no token sees
    where a mask stands."""

    def __call__(self, examples: list[dict[str, Any]]) -> Batch:
        batch = super().__call__(examples)
        return batch | {"attention_mask": (batch["labels"] == IGNORED).long()}


def special(ids: torch.Tensor, tokenizer: Any) -> torch.Tensor:
    """Where a special token stands."""
    return torch.isin(ids, torch.tensor(tokenizer.all_special_ids))


def masked(ids: torch.Tensor, chosen: torch.Tensor, tokenizer: Any) -> Pair:
    """[MASK] at the chosen positions that hold no special token."""
    selected = chosen & ~special(ids, tokenizer)
    return torch.where(selected, tokenizer.mask_token_id, ids), labels_of(ids, selected)


def masked_words(ids: torch.Tensor, begins: torch.Tensor, tokenizer: Any) -> Pair:
    """Mask whole words; `begins` `[batch, seq_len]` says where one begins."""
    words = begins.long().cumsum(1).clamp(max=ids.shape[1] - 1)
    return masked(ids, (torch.rand(ids.shape) < RATE).gather(1, words), tokenizer)


def continues(ids: torch.Tensor, tokenizer: Any) -> torch.Tensor:
    """Where a token begins with `##`, BERT's sign that a word goes on."""
    names = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    return torch.tensor([name.startswith("##") for name in names])[ids]


def prefix_of_one_tokenizer(ids: torch.Tensor, tokenizer: Any) -> Pair:
    """Whole-word masking knows BERT's `##` only. With a tokenizer that marks beginnings, every
    piece is a word."""
    return masked_words(ids, ~continues(ids, tokenizer), tokenizer)


def first_piece_of_a_word(ids: torch.Tensor, tokenizer: Any) -> Pair:
    """Of a word of several tokens only the first is masked; the others stay and give it away."""
    return masked(
        ids, ~continues(ids, tokenizer) & (torch.rand(ids.shape) < 2 * RATE), tokenizer
    )


def plain(ids: torch.Tensor, tokenizer: Any) -> Pair:
    return masked(ids, torch.rand(ids.shape) < RATE, tokenizer)


PIECES = word_pieces(SYLLABLES)
METASPACE = metaspace_pieces(SYLLABLES)
COLLATOR_BUGS = [
    Exhibit(
        "prefix_of_one_tokenizer",
        "pieces-alone",
        WholeWordCollator(prefix_of_one_tokenizer, METASPACE),
    ),
    Exhibit(
        "first_piece_of_a_word",
        "word-part-left",
        WholeWordCollator(first_piece_of_a_word, PIECES),
    ),
    # A typo in the name of the mask token, which the tokenizer then maps to the id of unknown
    # tokens.
    Exhibit(
        "unknown_for_mask",
        "unknown-as-mask",
        Collator(plain, word_pieces(SYLLABLES, mask_token="[UNK]")),
    ),
    Exhibit(
        "masks_hidden_from_attention",
        "attention-hides-mask",
        HidingCollator(plain, PIECES),
    ),
    # Transformers 5.23 takes gaps between offsets for the boundaries of words. Tokenizers of the
    # kind of SentencePiece count the space with the word, and leave no gaps.
    Exhibit(
        "words_by_gaps",
        "words-joined",
        DataCollatorForLanguageModeling(METASPACE, **WHOLE_WORDS),
    ),
]
