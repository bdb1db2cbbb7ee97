"""Tokenizers of other makers, as files."""

import json

from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

BERT_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def wordpiece(text):
    """BERT's: lower case, special tokens first, [CLS] and [SEP] around each text."""
    new = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    new.normalizer = normalizers.BertNormalizer(lowercase=True)
    new.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    new.decoder = decoders.WordPiece()
    new.train_from_iterator(
        [text], trainers.WordPieceTrainer(vocab_size=80, special_tokens=BERT_SPECIAL)
    )
    new.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    new.enable_truncation(8)
    return new


def unigram(text):
    """SentencePiece's, with ▁ for spaces."""
    new = Tokenizer(models.Unigram())
    new.pre_tokenizer = pre_tokenizers.Metaspace()
    new.decoder = decoders.Metaspace()
    special = ["<s>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=60, special_tokens=special, unk_token="<unk>", show_progress=False
    )
    new.train_from_iterator(text.splitlines(), trainer)
    return new


def gpt2(text):
    """A byte-level BPE with an added token and a special one, both above the ids of the others."""
    new = Tokenizer(models.BPE())
    new.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    new.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    new.train_from_iterator([text], trainer)
    new.add_tokens(["  "])
    new.add_special_tokens(["<|endoftext|>"])
    return new


def without_decoder(tokenizer):
    tokenizer.decoder = None
    return tokenizer


def cased_wordpiece(text):
    """Without decoder and normalizer."""
    new = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    new.pre_tokenizer = pre_tokenizers.Whitespace()
    new.train_from_iterator(
        [text], trainers.WordPieceTrainer(vocab_size=120, special_tokens=BERT_SPECIAL)
    )
    return new


def suffixed(text):
    """The first BPE for text, with </w> at the ends of words."""
    new = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    new.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(
        vocab_size=120, special_tokens=["<unk>"], end_of_word_suffix="</w>"
    )
    new.train_from_iterator([text], trainer)
    return new


def llama(text):
    """A BPE whose normalizer writes spaces as ▁, and bytes for unknown characters."""
    new = Tokenizer(models.BPE(byte_fallback=True))
    new.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    names = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=330, special_tokens=names)
    new.train_from_iterator(text.splitlines(), trainer)
    content = json.loads(new.to_str())
    return Tokenizer.from_str(json.dumps(content | {"added_tokens": []}))


def words(text):
    new = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    new.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.WordLevelTrainer(special_tokens=["[UNK]"], vocab_size=10_000)
    new.train_from_iterator([text], trainer)
    return new


ATOM = r"(\[[^\]]+]|Br?|Cl?|[NOSPFIbcnosp]|[()=#\-+\\/:~@?>*$.]|%[0-9]{2}|[0-9])"


def smiles(text):
    """Atoms and bonds of molecules."""
    new = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    new.pre_tokenizer = pre_tokenizers.Split(Regex(ATOM), "isolated")
    trainer = trainers.WordLevelTrainer(special_tokens=["[UNK]"])
    new.train_from_iterator([text], trainer)
    return new


def letters(text):
    """A BPE of Latin letters, without a token for unknown text."""
    new = Tokenizer(models.BPE())
    new.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(
        vocab_size=100,
        initial_alphabet=list("abcdefghijklmnopqrstuvwxyz"),
        limit_alphabet=26,
    )
    new.train_from_iterator([text], trainer)
    return new


MAKERS = {
    "wordpiece": wordpiece,
    "wordpiece without decoder": lambda text: without_decoder(wordpiece(text)),
    "cased wordpiece": cased_wordpiece,
    "unigram": unigram,
    "unigram without decoder": lambda text: without_decoder(unigram(text)),
    "gpt2": gpt2,
    "gpt2 without decoder": lambda text: without_decoder(gpt2(text)),
    "suffixed": suffixed,
    "llama": llama,
    "words": words,
}


def saved(folder, name, text):
    """The file of a tokenizer that learned from a text."""
    MAKERS[name](text).save(str(folder / f"{name}.json"))
    return folder / f"{name}.json"
