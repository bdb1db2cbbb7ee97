"""Hugging Face's BertForMaskedLM with its own collator, a tokenizer of characters, and [CLS] and
[SEP]."""

import sys

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

# transformers imports it if it is installed, even for another PyTorch
sys.modules.setdefault("torchvision", None)

from transformers import (  # noqa: E402
    BertConfig,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    PreTrainedTokenizerFast,
)

BATCH = 32
SEQ_LEN = 62


def make_model(tokens):
    sizes = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 128,
    }
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    ids = {"vocab_size": tokens.n_tokens, "pad_token_id": tokens.padding}
    return BertForMaskedLM(
        BertConfig(max_position_embeddings=SEQ_LEN + 2, **ids, **sizes, **dropout)
    )


def make_batches(ids, tokens, seed, training):
    vocabulary = {name: i for i, name in enumerate(tokens.names)}
    special = {
        "pad_token": "[PAD]",
        "mask_token": "[MASK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
    }
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(vocabulary, unk_token="[UNK]")),
        unk_token="[UNK]",
        **special,
    )
    collate = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    generator = torch.Generator().manual_seed(seed)

    for _ in range(10**9 if training else 8):
        starts = torch.randint(
            len(ids) - SEQ_LEN, (BATCH,), generator=generator
        ).tolist()
        windows = [
            [tokens.cls, *ids[start : start + SEQ_LEN].tolist(), tokens.sep]
            for start in starts
        ]
        yield collate([{"input_ids": window} for window in windows])


def loss_and_logits(model, batch):
    output = model(**batch)
    return output.loss, output.logits
