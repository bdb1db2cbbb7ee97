"""Correct maskers of different kinds. The audit must not find anything broken in them.

`known` names what the audit may still report as `differs`, because it is true: Hugging Face's
collator, like BERT's own code, draws random tokens from the whole vocabulary, and units of words
depend on the window's ends.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from auditing.findings import Finding, Verdict
from auditing.masks.audit import audit_masks
from auditing.report import Report
from auditing.tests.museum.exhibit import (
    MASK,
    N_ORDINARY,
    RATE,
    Pair,
    TensorMasker,
    drawn,
    only_masks,
    ordinary,
    result,
)
from auditing.tests.museum.tokenizers import ONLY_MASKS, WHOLE_WORDS, collator


@dataclass(frozen=True)
class Correct:
    """A correct masker, made anew for each audit with the audit's seed."""

    name: str
    make: Callable[[int], Any]
    known: frozenset[str] = frozenset()
    options: dict[str, Any] = field(default_factory=dict)
    recipe: str = ""  # that the audit must name, if it is one of those that it knows

    def audit(self, seed: int, **options: Any) -> Report:
        return audit_masks(self.make(seed), seed=seed, **{**options, **self.options})

    def alarms(self, report: Report) -> list[Finding]:
        """The false alarms of an audit: what is `broken`, or `differs` in something that is not
        known."""
        wrong = [each for each in report.findings if each.verdict != Verdict.OK]
        return [
            each
            for each in wrong
            if each.verdict == Verdict.BROKEN or each.bug not in self.known
        ]


def fixed_count(seed: int) -> TensorMasker:
    """The same number of positions in each window, drawn without replacement."""

    def mask(x: torch.Tensor) -> Pair:
        n_selected = (RATE * ordinary(x).sum(1, keepdim=True)).round().clamp(min=1)
        ranks = torch.rand(x.shape).masked_fill(~ordinary(x), 2.0).argsort(1).argsort(1)
        return result(x, (ranks < n_selected) & ordinary(x))

    return TensorMasker(mask)


def rates(draw: Callable[[int], torch.Tensor]) -> Callable[[int], TensorMasker]:
    """Masked diffusion: [MASK] at a rate per window, drawn for `n` windows."""

    def mask(x: torch.Tensor) -> Pair:
        return only_masks(x, drawn(x, draw(len(x))[:, None]))

    return lambda seed: TensorMasker(mask)


def spans(rate: float = RATE / 3) -> TensorMasker:
    """Spans of three tokens, which begin independently at this rate of the positions."""

    def mask(x: torch.Tensor) -> Pair:
        begins = torch.rand(x.shape) < rate
        return result(x, (begins | begins.roll(1, 1) | begins.roll(2, 1)) & ordinary(x))

    return TensorMasker(mask)


def numpy_masker(x: Any) -> tuple[np.ndarray, np.ndarray]:
    x = np.asarray(x)
    selected = (np.random.random(x.shape) < RATE) & (x < N_ORDINARY)
    draw = np.random.random(x.shape)
    replaced = np.where(
        draw < 0.8,
        MASK,
        np.where(draw < 0.9, np.random.randint(N_ORDINARY, size=x.shape), x),
    )
    return np.where(selected, replaced, x), np.where(selected, x, -100)


def letters(x: torch.Tensor) -> Pair:
    """Masks of DNA. A random letter that differs from the original is one of three."""
    selected = torch.rand(x.shape) < RATE
    draw = torch.rand(x.shape)
    replaced = torch.where(
        draw < 0.8, 4, torch.where(draw < 0.9, torch.randint(4, x.shape), x)
    )
    return torch.where(selected, replaced, x), torch.where(selected, x, -100)


def of_lists(x: list[list[int]]) -> tuple[list[list[int]], list[list[int]]]:
    inputs, labels = numpy_masker(x)
    return inputs.tolist(), labels.tolist()


def batch_dict(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    inputs, labels = result(batch["input_ids"], drawn(batch["input_ids"]))
    return {**batch, "input_ids": inputs, "labels": labels}


class Rearranging:
    """Transformers' collator, on examples that are rearranged before."""

    def __init__(
        self, rearrange: Callable[[list[dict[str, Any]], Any], list[dict[str, Any]]]
    ):
        self.inner = collator()
        self.tokenizer = self.inner.tokenizer
        self.rearrange = rearrange

    def __call__(self, examples: list[dict[str, Any]]) -> Any:
        return self.inner(self.rearrange(examples, self.tokenizer))


def joined(examples: list[dict[str, Any]], length: int) -> list[dict[str, Any]]:
    """All texts one after the other, cut into windows."""
    ids = []
    for example in examples:
        ids += example["input_ids"]

    return [
        {"input_ids": ids[begin : begin + length]}
        for begin in range(0, max(1, len(ids) - length + 1), length)
    ]


def surrounded(example: dict[str, Any], tokenizer: Any) -> dict[str, Any]:
    """The text with new special tokens around it, and none inside."""
    ids = [
        id
        for id in example["input_ids"]
        if id not in (tokenizer.cls_token_id, tokenizer.sep_token_id)
    ]
    return {"input_ids": [tokenizer.cls_token_id, *ids, tokenizer.sep_token_id]}


def paired(example: dict[str, Any], tokenizer: Any) -> dict[str, Any]:
    """The halves of the text as a pair of sentences."""
    *ids, end = surrounded(example, tokenizer)["input_ids"]
    middle = (len(ids) + 1) // 2
    return {"input_ids": [*ids[:middle], end, *ids[middle:], end]}


REARRANGED: dict[str, Callable[[list[dict[str, Any]], Any], list[dict[str, Any]]]] = {
    "sorted by length": lambda examples, tokenizer: sorted(
        examples, key=lambda each: -len(each["input_ids"])
    ),
    "shuffled": lambda examples, tokenizer: random.sample(examples, len(examples)),
    "truncated": lambda examples, tokenizer: [
        {"input_ids": each["input_ids"][:100]} for each in examples
    ],
    "packed": lambda examples, tokenizer: joined(examples, 96),
    "flattened": lambda examples, tokenizer: joined(
        examples, sum(len(each["input_ids"]) for each in examples)
    ),
    "of pairs": lambda examples, tokenizer: [
        paired(each, tokenizer) for each in examples
    ],
    "with special tokens": lambda examples, tokenizer: [
        surrounded(each, tokenizer) for each in examples
    ],
}


DRAWS_SPECIAL = frozenset({"special-as-replacement"})
CORRECT = [
    Correct(
        "four letters",
        lambda seed: letters,
        options={"n_tokens": 5, "mask": 4, "special": (4,)},
    ),
    Correct("fixed count", fixed_count),
    Correct("spans", lambda seed: spans()),
    Correct(
        "ModernBERT",
        lambda seed: TensorMasker(lambda x: result(x, drawn(x, 0.3))),
        recipe="ModernBERT",
    ),
    Correct("masked diffusion", rates(torch.rand), recipe="masked diffusion"),
    Correct("MaskGIT", rates(lambda n: torch.cos(torch.rand(n) * math.pi / 2))),
    Correct("stratified rates", rates(lambda n: (torch.rand(n) + torch.arange(n)) / n)),
    Correct("rates from 15% to 40%", rates(lambda n: 0.15 + 0.25 * torch.rand(n))),
    Correct("NumPy", lambda seed: TensorMasker(numpy_masker), recipe="BERT"),
    Correct("lists", lambda seed: TensorMasker(of_lists), options={"kind": "lists"}),
    Correct(
        "batch dict", lambda seed: TensorMasker(batch_dict), options={"kind": "dict"}
    ),
    Correct("collator", lambda seed: collator(), DRAWS_SPECIAL),
    Correct(
        "collator, [MASK] only",
        lambda seed: collator(**ONLY_MASKS),
        recipe="[MASK] only",
    ),
    Correct("collator, 30%", lambda seed: collator(mlm_probability=0.3, **ONLY_MASKS)),
    Correct("collator, whole words", lambda seed: collator(**WHOLE_WORDS)),
    Correct(
        "collator, padded to 128",
        lambda seed: collator(pad_to_multiple_of=128),
        DRAWS_SPECIAL,
    ),
    *(
        Correct(
            f"collator, {name}",
            lambda seed, change=change: Rearranging(change),
            DRAWS_SPECIAL,
        )
        for name, change in REARRANGED.items()
    ),
]
