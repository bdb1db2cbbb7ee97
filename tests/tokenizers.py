"""Tokenizers of other makers, as files."""

from tokenizers import (
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


MAKERS = {"wordpiece": wordpiece, "unigram": unigram, "gpt2": gpt2}


def saved(folder, name, text):
    """The file of a tokenizer that learned from a text."""
    MAKERS[name](text).save(str(folder / f"{name}.json"))
    return folder / f"{name}.json"
