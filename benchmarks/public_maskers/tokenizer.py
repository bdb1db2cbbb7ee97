"""Tokenizers made here, of our own vocabulary: Hugging Face's collators need one, and none is downloaded."""

from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from benchmarks.public_maskers.vocabulary import CLS, SEP, SPECIAL, WORDS

NAMES = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}


def bert_like() -> Any:
    """Every character is a token."""
    model = models.WordLevel({word: id for id, word in enumerate(WORDS)}, unk_token="[UNK]")
    return with_special_tokens(model, pre_tokenizers.Split("", "isolated"), {})


def word_pieces(syllables: list[str], **names: str) -> Any:
    """BERT's word pieces: a word begins with a syllable, and `##` marks the syllables that continue it."""
    pieces = [*SPECIAL, *syllables, *(f"##{syllable}" for syllable in syllables)]
    model = models.WordPiece({piece: id for id, piece in enumerate(pieces)}, unk_token="[UNK]")
    return with_special_tokens(model, pre_tokenizers.Whitespace(), names)


def metaspace_pieces(syllables: list[str]) -> Any:
    """SentencePiece's: `▁` marks the syllables that begin a word."""
    pieces = [*SPECIAL, *syllables, *(f"▁{syllable}" for syllable in syllables)]
    vocabulary = {piece: id for id, piece in enumerate(pieces)}
    model = models.WordPiece(vocabulary, unk_token="[UNK]", continuing_subword_prefix="")
    return with_special_tokens(model, pre_tokenizers.Metaspace(), {})


def with_special_tokens(model: Any, pre_tokenizer: Any, names: dict[str, str]) -> Any:
    """A fast tokenizer of `transformers` that puts [CLS] and [SEP] around a text."""
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **{**NAMES, **names})
