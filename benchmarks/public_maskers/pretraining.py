"""Maskers of packages for pretraining with a vocabulary or tokens of their own. Thin targets, as in `packages`."""

import random
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from benchmarks.public_maskers.packages import package
from benchmarks.public_maskers.published import published
from benchmarks.public_maskers.vocabulary import (
    CLS,
    IGNORED,
    MASK,
    PAD,
    SEP,
    SPECIAL,
    WORDS,
    Masker,
    Sequences,
    row_by_row,
)

BERT_MASK = 103  # the ids of bert-base-uncased: 0 [PAD], 100 [UNK], 101 [CLS], 102 [SEP], 103 [MASK], characters
BERT_SPECIAL = [101, 102, *range(1, 101)]


@package("megatron-core")
def megatron() -> Masker:
    """BERT's recipe as in Megatron's defaults: whole words, n-grams of one word. A character is a word here."""
    tokenizer = SimpleNamespace(cls=CLS, sep=SEP, mask=MASK, inv_vocab=dict(enumerate(WORDS)))
    config = SimpleNamespace(
        tokenizer=tokenizer,
        masking_probability=0.15,
        masking_max_ngram=1,
        masking_do_full_word=True,
        masking_do_permutation=False,
        masking_use_longer_ngrams=False,
        masking_use_geometric_distribution=False,
    )
    names: dict[str, Any] = {"numpy": np}
    folder = "megatron/core/datasets"
    predictions = "MaskedWordPieceDataset._create_masked_lm_predictions"
    [create] = published("megatron-core", f"{folder}/masked_dataset.py", predictions, **names)
    [token_mask] = published(
        "megatron-core", f"{folder}/bert_dataset.py", "BERTMaskedWordPieceDataset._get_token_mask", **names
    )
    dataset = SimpleNamespace(config=config, token_lookup=list(tokenizer.inv_vocab))
    dataset._get_token_mask = lambda state: token_mask(dataset, state)

    def mask(ids: list[int]) -> Sequences:
        length = len(ids) - ids.count(PAD)
        state = np.random.RandomState(int(torch.randint(2**31, ())))
        inputs, positions, originals, *_ = create(dataset, ids[:length], len(ids), state)
        labels = dict(zip(positions, originals, strict=True))
        return [*inputs, *ids[length:]], [labels.get(place, -1) for place in range(len(ids))]

    return row_by_row(mask, ignored=-1)


@package("farm")
def farm() -> Masker:
    """Its special tokens have the ids of bert-base-uncased, whatever the vocabulary is."""
    [mask_words] = published(
        "farm", "farm/data_handler/processor.py", "BertStyleLMProcessor._mask_random_words", random=random
    )
    processor = SimpleNamespace(masked_lm_prob=0.15)
    n_tokens = BERT_MASK + 1 + 65

    def mask(ids: list[int]) -> Sequences:
        length = len(ids) - ids.count(PAD)
        inputs, labels = mask_words(processor, ids[:length], n_tokens)
        return [*inputs, *ids[length:]], [*labels, *[-1] * (len(ids) - length)]

    return row_by_row(mask, ignored=-1, mask_token=BERT_MASK, no_mask_tokens=BERT_SPECIAL, n_tokens=n_tokens)


@package("methylbert")
def methylbert() -> Masker:
    """Masks the neighbors of a selected token too. It puts its own tokens around a text: the first is cut off. It fails
    on a sequence of special tokens alone, which stays as it is here."""
    vocabulary = SimpleNamespace(mask_index=MASK, eos_index=SEP, sos_index=CLS)
    sized = type("Vocabulary", (SimpleNamespace,), {"__len__": lambda self: len(WORDS)})(**vars(vocabulary))
    dataset = SimpleNamespace(vocab=sized, mask_list=[-1, 1])
    names: dict[str, Any] = {"torch": torch, "deepcopy": deepcopy}
    [masking] = published("methylbert", "methylbert/data/dataset.py", "MethylBertPretrainDataset._masking", **names)

    def mask(ids: list[int]) -> Sequences:
        if max(ids) < len(SPECIAL):
            return ids, [IGNORED] * len(ids)
        inputs, labels, _ = masking(dataset, torch.tensor(ids, dtype=torch.int16))
        return inputs[1:].tolist(), labels[1:].tolist()

    return row_by_row(mask)
