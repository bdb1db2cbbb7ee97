"""Maskers of packages from the registry, as thin targets: each runs the published function on our vocabulary.

`pip install --no-deps -r requirements-audit.txt` installs them. A factory raises PackageNotFoundError without its
package. Labels keep the package's own sign for "not predicted".
"""

import math
import random
from collections.abc import Callable
from copy import copy
from functools import reduce
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from benchmarks.public_maskers.published import published
from benchmarks.public_maskers.tokenizer import bert_like
from benchmarks.public_maskers.vocabulary import (
    CLS,
    MASK,
    N_TOKENS,
    PAD,
    SEP,
    SPECIAL,
    UNK,
    WORDS,
    Masker,
    Pair,
    row_by_row,
    text_only,
)

Factory = Callable[[], Masker]
PACKAGES: dict[str, tuple[str, Factory]] = {}  # name -> the distribution that its version is read from, and the factory


def package(distribution: str, name: str = "") -> Callable[[Factory], Factory]:
    """Register a factory under the name of its distribution, or under `name`."""

    def register(factory: Factory) -> Factory:
        PACKAGES[name or distribution] = (distribution, factory)
        return factory

    return register


class LossComputedError(Exception):
    """Ends the forward pass of a package's model once its inputs and labels are known."""


def lucidrains(distribution: str, path: str, method: str, model: str, replace_prob: float) -> Masker:
    """mlm-pytorch and electra-pytorch mask inside their model's forward pass, with 10% random tokens switched on."""
    seen: dict[str, torch.Tensor] = {}

    def transformer(inputs: torch.Tensor, **_: Any) -> torch.Tensor:
        seen["inputs"] = inputs
        return inputs[..., None].float()

    def cross_entropy(logits: torch.Tensor, labels: torch.Tensor, ignore_index: int) -> None:
        seen["labels"] = labels
        raise LossComputedError

    helpers = ("prob_mask_like", "mask_with_tokens", "get_mask_subset_with_prob")
    functional = SimpleNamespace(cross_entropy=cross_entropy)
    names: dict[str, Any] = {"torch": torch, "math": math, "reduce": reduce, "F": functional}
    forward, *_ = published(distribution, path, method, *helpers, **names)
    settings = SimpleNamespace(
        mask_prob=0.15,
        replace_prob=replace_prob,
        random_token_prob=0.1,
        num_tokens=N_TOKENS,
        mask_token_id=MASK,
        pad_token_id=PAD,
        mask_ignore_token_ids={PAD, UNK, CLS, SEP},
    )
    setattr(settings, model, transformer)

    def mask(x: torch.Tensor) -> Pair:
        try:
            forward(settings, x)
        except LossComputedError:
            return seen["inputs"], seen["labels"]
        raise AssertionError("the forward pass computed no loss")

    return Masker(mask, ignored=PAD)


@package("mlm-pytorch")
def mlm_pytorch() -> Masker:
    return lucidrains("mlm-pytorch", "mlm_pytorch/mlm_pytorch.py", "MLM.forward", "transformer", replace_prob=0.9)


@package("electra-pytorch")
def electra_pytorch() -> Masker:
    path = "electra_pytorch/electra_pytorch.py"
    return lucidrains("electra-pytorch", path, "Electra.forward", "generator", replace_prob=0.85)


@package("bert-pytorch")
def bert_pytorch() -> Masker:
    class Vocabulary:
        stoi = {word: id for id, word in enumerate(WORDS)}
        mask_index, unk_index = MASK, UNK

        def __len__(self) -> int:
            return N_TOKENS

    [random_word] = published(
        "bert-pytorch", "bert_pytorch/dataset/dataset.py", "BERTDataset.random_word", random=random
    )
    dataset = SimpleNamespace(vocab=Vocabulary())
    return text_only(lambda ids: random_word(dataset, " ".join(WORDS[id] for id in ids)), ignored=PAD)


@package("simpletransformers")
def simpletransformers() -> Masker:
    path = "simpletransformers/language_modeling/language_modeling_utils.py"
    [mask_tokens] = published("simpletransformers", path, "mask_tokens", torch=torch)
    arguments = SimpleNamespace(mlm_probability=0.15, model_type="bert")
    tokenizer = bert_like()
    return Masker(lambda x: mask_tokens(x, tokenizer, arguments))


@package("fast-bert")
def fast_bert() -> Masker:
    [mask_tokens] = published("fast-bert", "fast_bert/data_lm.py", "BertLMDataBunch.mask_tokens", torch=torch)
    bunch = SimpleNamespace(tokenizer=bert_like())
    return Masker(lambda x: mask_tokens(bunch, x))


@package("tape-proteins")
def tape() -> Masker:
    tokenizer = SimpleNamespace(
        start_token="[CLS]",
        stop_token="[SEP]",
        mask_token="[MASK]",
        vocab_size=N_TOKENS,
        convert_token_to_id=WORDS.index,
        convert_id_to_token=WORDS.__getitem__,
    )
    names: dict[str, Any] = {"random": random, "np": np, "copy": copy}
    method = "MaskedLanguageModelingDataset._apply_bert_mask"
    [apply_bert_mask] = published("tape-proteins", "tape/datasets.py", method, **names)

    def mask(ids: list[int]) -> tuple[list[int], list[int]]:
        length = len(ids) - ids[::-1].index(SEP) if SEP in ids else len(ids) - ids.count(PAD)
        tokens, labels = apply_bert_mask(SimpleNamespace(tokenizer=tokenizer), [WORDS[id] for id in ids[:length]])
        rest = len(ids) - length  # the collate function pads inputs with 0 and labels with -1
        return [WORDS.index(token) for token in tokens] + [PAD] * rest, labels.tolist() + [-1] * rest

    return row_by_row(mask, ignored=-1)


@package("bionemo-llm")
def bionemo() -> Masker:
    [apply_mask] = published("bionemo-llm", "bionemo/llm/data/masking.py", "apply_bert_pretraining_mask", torch=torch)
    tokenizer = SimpleNamespace(mask_token_id=MASK, all_special_ids=list(range(len(SPECIAL))))
    config = SimpleNamespace(
        tokenizer=tokenizer,
        random_tokens=range(len(SPECIAL), N_TOKENS),
        mask_prob=0.15,
        mask_token_prob=0.8,
        random_token_prob=0.1,
    )

    def mask(x: torch.Tensor) -> Pair:
        inputs, labels, _ = apply_mask(x, int(torch.randint(2**31, ())), config)
        return inputs, labels

    return Masker(mask)


@package("cehrbert")
def cehrbert() -> Masker:
    path = "cehrbert/data_generators/hf_data_generator/hf_dataset_collator.py"
    [mask_tokens] = published("cehrbert", path, "CehrBertDataCollator.torch_mask_tokens", torch=torch)
    tokenizer = SimpleNamespace(pad_token_index=PAD, mask_token_index=MASK, vocab_size=N_TOKENS)
    collator = SimpleNamespace(tokenizer=tokenizer, mlm_probability=0.15)
    return Masker(lambda x: mask_tokens(collator, x.clone(), x.clone()))
