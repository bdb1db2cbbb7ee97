"""Small checkpoints of transformers with random weights, as their users save them."""

import json

import torch
import transformers
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast

from tests.tokenizers import BERT_SPECIAL, wordpiece

SHAPE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 300,
    "initializer_range": 0.2,  # so that predictions differ
}
# the masks take the space before them
MODERNBERT = [*BERT_SPECIAL[:-1], AddedToken("[MASK]", lstrip=True)]
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True)]


def of_bert(text):
    return with_bert_tokens(wordpiece(text))


def of_modernbert(text):
    """Byte-level, with BERT's special tokens, of which it never uses [UNK]."""
    new = byte_level(text, MODERNBERT)
    ids = [(token, new.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    new.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=ids
    )
    return with_bert_tokens(new)


def of_roberta(text):
    """Byte-level, with RoBERTa's special tokens."""
    return with_roberta_tokens(byte_level(text, ROBERTA))


def byte_level(text, special):
    new = Tokenizer(models.BPE())
    new.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    new.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, initial_alphabet=alphabet
    )
    new.train_from_iterator([text], trainer)
    return new


def with_bert_tokens(tokenizer):
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


def of_camembert(text):
    """SentencePiece's unigrams, with ▁ for spaces."""
    new = Tokenizer(models.Unigram())
    new.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    new.decoder = decoders.Metaspace()
    special = [*ROBERTA, "<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"]
    trainer = trainers.UnigramTrainer(
        vocab_size=70, special_tokens=special, unk_token="<unk>", show_progress=False
    )
    new.train_from_iterator(text.splitlines(), trainer)
    return with_roberta_tokens(new)


def with_roberta_tokens(tokenizer):
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        cls_token="<s>",
        pad_token="<pad>",
        eos_token="</s>",
        sep_token="</s>",
        unk_token="<unk>",
        mask_token="<mask>",
    )


def roberta(kind, tokenizer=of_roberta):
    keys = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    return f"{kind}ForMaskedLM", tokenizer, {**keys, "type_vocab_size": 1}


CLASSES = {  # the class, its tokenizer, and the settings that differ
    "bert": ("BertForMaskedLM", of_bert, {}),
    "bert without head": ("BertModel", of_bert, {}),
    "distilbert": (
        "DistilBertForMaskedLM",
        of_bert,
        {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 48},
    ),
    "electra": ("ElectraForMaskedLM", of_bert, {"embedding_size": 16}),
    "modernbert": (
        "ModernBertForMaskedLM",
        of_modernbert,
        # the layers alternate between local and global attention
        {
            "local_attention": 8,
            "global_attn_every_n_layers": 2,
            "num_hidden_layers": 3,
            "pad_token_id": 0,
        },
    ),
    "roberta": roberta("Roberta"),
    "camembert": roberta("Camembert", of_camembert),
    "xlm-roberta": roberta("XLMRoberta", of_camembert),
}
OTHERS = {
    "albert": ("AlbertForMaskedLM", of_bert, {"embedding_size": 16}),
    "mpnet": roberta("MPNet"),
}
N_UNUSED = 3  # rows of the embedding that no token has


TOKENIZERS = {  # the class that published checkpoints name
    "bert": "BertTokenizer",
    "roberta": "RobertaTokenizer",
    "camembert": "CamembertTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
}


def checkpoint(folder, name, text):
    """The folder with a model of a class and its tokenizer, which has learned from a text."""
    kind, make_tokenizer, settings = (CLASSES | OTHERS)[name]
    tokenizer = make_tokenizer(text)
    shape = dict(SHAPE)
    if name == "distilbert":
        shape = {
            key: SHAPE[key] for key in ("max_position_embeddings", "initializer_range")
        }
    auto = getattr(transformers, kind)
    config = auto.config_class(**shape | settings, vocab_size=len(tokenizer) + N_UNUSED)
    torch.manual_seed(0)
    model = auto(config)
    if name == "xlm-roberta":
        model = model.bfloat16()
    model.save_pretrained(folder, max_shard_size="20KB")
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    settings["tokenizer_class"] = TOKENIZERS.get(name, "PreTrainedTokenizerFast")
    path.write_text(json.dumps(settings))
    return folder
