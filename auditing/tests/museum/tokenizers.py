"""Hugging Face's tokenizers of our own vocabulary, and its collators with their options; nothing is
downloaded."""

from itertools import product
from typing import Any

from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

SPECIAL = {
    f"{name}_token": f"[{name.upper()}]"
    for name in ("pad", "unk", "cls", "sep", "mask")
}
SYLLABLES = list(map("".join, product("bdfgklmnprstvz", "aeiou")))
# 2,945 tokens with ##
PIECES = [*SYLLABLES, *map("".join, product(SYLLABLES, SYLLABLES[:20]))]
ONLY_MASKS: dict[str, Any] = {"mask_replace_prob": 1.0, "random_replace_prob": 0.0}
WHOLE_WORDS: dict[str, Any] = {"whole_word_mask": True, **ONLY_MASKS}


def word_pieces(syllables: list[str], **names: str) -> Any:
    """BERT's word pieces: a word begins with a syllable, and `##` marks the syllables that continue
    it."""
    pieces = [
        *SPECIAL.values(),
        *syllables,
        *(f"##{syllable}" for syllable in syllables),
    ]
    model = models.WordPiece(
        {piece: id for id, piece in enumerate(pieces)}, unk_token="[UNK]"
    )
    return with_special_tokens(model, pre_tokenizers.Whitespace(), names)


def metaspace_pieces(syllables: list[str]) -> Any:
    """SentencePiece's: `▁` marks the syllables that begin a word."""
    pieces = [
        *SPECIAL.values(),
        *syllables,
        *(f"▁{syllable}" for syllable in syllables),
    ]
    vocabulary = {piece: id for id, piece in enumerate(pieces)}
    model = models.WordPiece(
        vocabulary, unk_token="[UNK]", continuing_subword_prefix=""
    )
    return with_special_tokens(model, pre_tokenizers.Metaspace(), {})


def with_special_tokens(model: Any, pre_tokenizer: Any, names: dict[str, str]) -> Any:
    """A fast tokenizer of `transformers` that puts [CLS] and [SEP] around a text."""
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIAL | names)


def learned_word_pieces(text: str) -> Tokenizer:
    """BERT's tokenizer, with `##` at pieces that continue a word."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=80, special_tokens=special)
    tokenizer.train_from_iterator([text], trainer)
    return tokenizer


def learned_unigrams(text: str) -> Tokenizer:
    """SentencePiece's tokenizer, with `▁` for spaces."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    special = ["<s>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=60, special_tokens=special, unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(text.splitlines(), trainer)
    return tokenizer


def learned_bytes(text: str) -> Tokenizer:
    """GPT-2's tokenizer, with `Ġ` for spaces."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        [text], trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet)
    )
    return tokenizer


def collator(**options: Any) -> DataCollatorForLanguageModeling:
    return DataCollatorForLanguageModeling(word_pieces(PIECES), **options)
