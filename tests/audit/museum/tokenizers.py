"""Hugging Face's tokenizers of our own vocabulary, and its collators with their options; nothing is downloaded."""

from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

SPECIAL = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
PIECES = [*SYLLABLES, *(first + second for first in SYLLABLES for second in SYLLABLES[:20])]  # 2,945 tokens with ##
ONLY_MASKS: dict[str, Any] = {"mask_replace_prob": 1.0, "random_replace_prob": 0.0}
WHOLE_WORDS: dict[str, Any] = {"whole_word_mask": True, **ONLY_MASKS}


def word_pieces(syllables: list[str], **names: str) -> Any:
    """BERT's word pieces: a word begins with a syllable, and `##` marks the syllables that continue it."""
    pieces = [*SPECIAL.values(), *syllables, *(f"##{syllable}" for syllable in syllables)]
    model = models.WordPiece({piece: id for id, piece in enumerate(pieces)}, unk_token="[UNK]")
    return with_special_tokens(model, pre_tokenizers.Whitespace(), names)


def metaspace_pieces(syllables: list[str]) -> Any:
    """SentencePiece's: `▁` marks the syllables that begin a word."""
    pieces = [*SPECIAL.values(), *syllables, *(f"▁{syllable}" for syllable in syllables)]
    vocabulary = {piece: id for id, piece in enumerate(pieces)}
    model = models.WordPiece(vocabulary, unk_token="[UNK]", continuing_subword_prefix="")
    return with_special_tokens(model, pre_tokenizers.Metaspace(), {})


def with_special_tokens(model: Any, pre_tokenizer: Any, names: dict[str, str]) -> Any:
    """A fast tokenizer of `transformers` that puts [CLS] and [SEP] around a text."""
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIAL | names)


def collator(**options: Any) -> DataCollatorForLanguageModeling:
    return DataCollatorForLanguageModeling(word_pieces(PIECES), **options)
