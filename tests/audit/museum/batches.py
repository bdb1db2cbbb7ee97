"""Bugs of maskers that need more than ids: an attention mask, or a tokenizer that knows where words begin."""

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.public_maskers.collators import SYLLABLES
from benchmarks.public_maskers.tokenizer import metaspace_pieces, word_pieces
from tests.audit.museum.exhibit import IGNORED, RATE, Pair, exhibit

Batch = dict[str, torch.Tensor]


class Collator:
    """A masking function of ids and a tokenizer, called as Hugging Face's data collators are: with a list of texts."""

    def __init__(self, mask: Callable[..., Pair], tokenizer: Any):
        self.mask = mask
        self.tokenizer = tokenizer

    def __call__(self, examples: list[dict[str, Any]]) -> Batch:
        features = [
            {key: example[key] for key in ("input_ids", "attention_mask") if key in example} for example in examples
        ]
        batch = dict(self.tokenizer.pad(features, return_tensors="pt"))
        batch["input_ids"], batch["labels"] = self.mask(batch["input_ids"], self.tokenizer)
        return batch


class WholeWordCollator(Collator):
    """Says by its name that it masks whole words."""


def special(ids: torch.Tensor, tokenizer: Any) -> torch.Tensor:
    """Where a special token stands."""
    return torch.isin(ids, torch.tensor(tokenizer.all_special_ids))


def masked_words(ids: torch.Tensor, begins: torch.Tensor, tokenizer: Any) -> Pair:
    """Mask whole words; `begins` `[batch, seq_len]` says where one begins."""
    words = begins.long().cumsum(1)
    chosen = (torch.rand(ids.shape) < RATE).gather(1, words.clamp(max=ids.shape[1] - 1))
    selected = chosen & ~special(ids, tokenizer)
    return torch.where(selected, tokenizer.mask_token_id, ids), torch.where(selected, ids, IGNORED)


def continues(ids: torch.Tensor, tokenizer: Any) -> torch.Tensor:
    """Where a token begins with `##`, BERT's sign that a word goes on."""
    prefixed = torch.tensor(
        [token.startswith("##") for token in tokenizer.convert_ids_to_tokens(range(len(tokenizer)))]
    )
    return prefixed[ids]


@exhibit("pieces-alone", make=lambda mask: WholeWordCollator(mask, metaspace_pieces(SYLLABLES)))
def prefix_of_one_tokenizer(ids: torch.Tensor, tokenizer: Any) -> Pair:
    """Whole-word masking knows BERT's `##` only. With a tokenizer that marks beginnings, every piece is a word."""
    return masked_words(ids, ~continues(ids, tokenizer), tokenizer)


@exhibit("word-part-left", make=lambda mask: WholeWordCollator(mask, word_pieces(SYLLABLES)))
def first_piece_of_a_word(ids: torch.Tensor, tokenizer: Any) -> Pair:
    """Of a word of several tokens only the first is masked; the others stay and give it away."""
    begins = ~continues(ids, tokenizer) & ~special(ids, tokenizer)
    selected = begins & (torch.rand(ids.shape) < 2 * RATE)
    return torch.where(selected, tokenizer.mask_token_id, ids), torch.where(selected, ids, IGNORED)


@exhibit("unknown-as-mask", make=lambda mask: Collator(mask, word_pieces(SYLLABLES, mask_token="[UNK]")))
def unknown_token_for_mask(ids: torch.Tensor, tokenizer: Any) -> Pair:
    """A typo in the name of the mask token, which the tokenizer then maps to the id of unknown tokens."""
    selected = (torch.rand(ids.shape) < RATE) & ~special(ids, tokenizer)
    return torch.where(selected, tokenizer.mask_token_id, ids), torch.where(selected, ids, IGNORED)


class HidingCollator(Collator):
    """Sets the attention mask to 0 wherever it put [MASK]."""

    def __call__(self, examples: list[dict[str, Any]]) -> Batch:
        batch = super().__call__(examples)
        batch["attention_mask"] = (batch["labels"] == IGNORED).long()
        return batch


@exhibit("attention-hides-mask", make=lambda mask: HidingCollator(mask, word_pieces(SYLLABLES)))
def masks_hidden_from_attention(ids: torch.Tensor, tokenizer: Any) -> Pair:
    """The attention mask becomes 0 at masked positions, as if they were padding: no token sees where a mask stands."""
    selected = (torch.rand(ids.shape) < RATE) & ~special(ids, tokenizer)
    return torch.where(selected, tokenizer.mask_token_id, ids), torch.where(selected, ids, IGNORED)


class OffsetsCollator(Collator):
    """Gives the masking function the characters' offsets of the tokens instead of a tokenizer's vocabulary."""

    whole_word_mask = True

    def __call__(self, examples: list[dict[str, Any]]) -> Batch:
        ids = torch.tensor([example["input_ids"] for example in examples])
        offsets = torch.tensor([example["offset_mapping"] for example in examples])
        inputs, labels = self.mask(ids, offsets, self.tokenizer)
        return {"input_ids": inputs, "labels": labels}


@exhibit("words-joined", make=lambda mask: OffsetsCollator(mask, metaspace_pieces(SYLLABLES)))
def words_by_gaps(ids: torch.Tensor, offsets: torch.Tensor, tokenizer: Any) -> Pair:
    """A word begins where the offsets leave a gap. Of tokenizers that count the space with the word, none does."""
    previous_end = torch.cat([torch.full((len(ids), 1), -1), offsets[:, :-1, 1]], 1)
    follows_special = torch.cat([torch.ones(len(ids), 1), special(ids, tokenizer)[:, :-1]], 1).bool()
    return masked_words(ids, (offsets[:, :, 0] != previous_end) | follows_special, tokenizer)
