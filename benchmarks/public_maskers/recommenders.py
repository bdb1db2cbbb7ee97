"""Maskers of recommender packages (BERT4Rec, Sun et al. 2019): their tokens are items. Targets as in `packages`."""

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from benchmarks.public_maskers.packages import package
from benchmarks.public_maskers.published import published
from benchmarks.public_maskers.vocabulary import MASK, N_TOKENS, PAD, SPECIAL, Masker, Pair, Sequences, text_only


@package("rectools")
def rectools() -> Masker:
    path = "rectools/models/nn/transformers/bert4rec.py"
    names: dict[str, Any] = {"np": np, "MASKING_VALUE": "MASK", "List": list, "Tuple": tuple, "int": int}
    [mask_session] = published("rectools", path, "BERT4RecDataPreparator._mask_session", **names)
    preparator = SimpleNamespace(
        mask_prob=0.15,
        extra_token_ids={"MASK": MASK},
        n_item_extra_tokens=len(SPECIAL),
        item_id_map=SimpleNamespace(size=N_TOKENS),
    )
    return text_only(lambda ids: mask_session(preparator, ids), ignored=PAD)


@package("replay-rec")
def replay() -> Masker:
    [forward] = published("replay-rec", "replay/nn/transform/token_mask.py", "TokenMaskTransform.forward", torch=torch)
    transform = SimpleNamespace(token_name="padding", out_feature_name="kept", mask_prob=0.15, generator=None)

    def mask(x: torch.Tensor) -> Pair:
        real = x >= len(SPECIAL)
        kept = forward(transform, {"padding": real})["kept"]
        return torch.where(real & ~kept, MASK, x), torch.where(real & ~kept, x, -100)

    return Masker(mask)


@package("recbole")
def recbole() -> Masker:
    """Its items are 1 to n_items - 1, and n_items is its mask; 4 below our ids, therefore."""
    first, n_items = len(SPECIAL) - 1, N_TOKENS - len(SPECIAL) + 1
    names: dict[str, Any] = {"random": random, "torch": torch, "Interaction": dict}
    methods = ("MaskItemSequence.__call__", "MaskItemSequence._padding_sequence")
    call, padding = published("recbole", "recbole/data/transform.py", *methods, **names)

    def mask(ids: list[int]) -> Sequences:
        transform = SimpleNamespace(
            ITEM_SEQ="items",
            ITEM_ID="item",
            MASK_ITEM_SEQ="masked",
            POS_ITEMS="positive",
            NEG_ITEMS="negative",
            MASK_INDEX="places",
            mask_ratio=0.15,
            mask_item_length=int(0.15 * len(ids)),
            ft_ratio=0,
            _padding_sequence=lambda sequence, length: padding(None, sequence, length),
            _neg_sample=lambda items, n_items: 1,  # not part of the masks; never returns if every item is in the text
        )
        batch = {"items": torch.tensor([ids]) - first}
        out = call(transform, SimpleNamespace(num=lambda field: n_items), batch)
        inputs = [MASK if item == n_items else item + first for item in out["masked"][0].tolist()]
        labels = [PAD] * len(ids)
        for place, item in zip(out["places"][0].tolist(), out["positive"][0].tolist(), strict=True):
            labels[place] = item + first if item else labels[place]
        return inputs, labels

    return text_only(mask, ignored=PAD)
