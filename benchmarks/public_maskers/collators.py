"""Hugging Face's collators, as they are and with their options, with a tokenizer like BERT's made here."""

from collections.abc import Callable
from typing import Any

from transformers import DataCollatorForLanguageModeling

from benchmarks.public_maskers.tokenizer import metaspace_pieces, word_pieces

SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
PIECES = [*SYLLABLES, *(first + second for first in SYLLABLES for second in SYLLABLES[:20])]  # 2,945 tokens with ##
WHOLE_WORDS: dict[str, Any] = {"whole_word_mask": True, "mask_replace_prob": 1.0, "random_replace_prob": 0.0}


def collator(**options: Any) -> Callable[[], DataCollatorForLanguageModeling]:
    return lambda: DataCollatorForLanguageModeling(word_pieces(PIECES), **options)


COLLATORS = {
    "default": collator(),
    "seed=1": collator(seed=1),
    "mask_replace_prob=0.8, random_replace_prob=0": collator(mask_replace_prob=0.8, random_replace_prob=0.0),
    "mask_replace_prob=1, random_replace_prob=0": collator(mask_replace_prob=1.0, random_replace_prob=0.0),
    "mlm_probability=0.3, mask_replace_prob=1, random_replace_prob=0": collator(
        mlm_probability=0.3, mask_replace_prob=1.0, random_replace_prob=0.0
    ),
    "whole_word_mask=True": collator(**WHOLE_WORDS),
    "whole_word_mask=True, SentencePiece": lambda: DataCollatorForLanguageModeling(
        metaspace_pieces(PIECES), **WHOLE_WORDS
    ),
}
