"""Correct maskers of different kinds. The audit must not find anything broken in them.

`known` names what the audit may still report as `differs`, because it is true: Hugging Face's collator, like BERT's
own code, draws random tokens from the whole vocabulary, and units of words depend on the window's ends.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from auditing.finding import Finding, Verdict
from auditing.masks.audit import audit_masks
from benchmarks.public_maskers.collators import COLLATORS
from data.masking import MLM, Corruption, Masker
from data.masking.strategies import STRATEGIES
from data.play.grammar import play
from tests.audit.museum.exhibit import (
    CLS,
    MASK,
    N_ORDINARY,
    N_TOKENS,
    PAD,
    RATE,
    SEP,
    Pair,
    TensorMasker,
    corrupted,
    drawn,
    labels_of,
    ordinary,
)


@dataclass(frozen=True)
class Correct:
    """A correct masker, made anew for each audit with the audit's seed."""

    name: str
    make: Callable[[int], Any]
    known: frozenset[str] = frozenset()
    options: dict[str, Any] = field(default_factory=dict)

    def alarms(self, seed: int) -> list[Finding]:
        """The false alarms of an audit with this seed."""
        audit = audit_masks(self.make(seed), seed=seed, **self.options)
        return [each for each in audit.findings if is_alarm(each, self.known)]


def is_alarm(finding: Finding, known: frozenset[str]) -> bool:
    """Whether a finding about a correct masker is wrong: `broken`, or `differs` in something that is not known."""
    return finding.verdict == Verdict.BROKEN or (finding.verdict == Verdict.DIFFERS and finding.bug not in known)


class FolioMLM(MLM):
    """Folio's MLM, with the attributes of the annotated interface."""

    mask_token, no_mask_tokens, n_tokens = MASK, [CLS, SEP], N_TOKENS


def folio_mlm(seed: int) -> FolioMLM:
    return FolioMLM(padding_token=PAD, mask_token=MASK, no_mask_tokens=[CLS, SEP], n_tokens=N_TOKENS)


def folio_masker(strategy: str) -> Callable[[int], TensorMasker]:
    """Folio's Masker: exactly round(rate * length) positions per window, at random offsets of a play."""

    def make(seed: int) -> TensorMasker:
        text = play(50_000, seed=seed)
        weights = torch.zeros(N_TOKENS).index_fill(0, torch.arange(N_ORDINARY), 1.0)
        masker = Masker(
            Corruption(mask_token=MASK, random_token_weights=weights),
            segmenter=STRATEGIES[strategy](text),
            seed=seed,
            device=torch.device("cpu"),
            no_mask_tokens=range(N_ORDINARY, N_TOKENS),
        )

        def mask(x: torch.Tensor) -> Pair:
            offsets = torch.randint(len(text) - x.shape[1], (len(x), 1)) + torch.arange(x.shape[1])
            batch = masker(x, offsets, RATE)
            labels = torch.full_like(x, -100).flatten()
            labels[batch.positions] = batch.labels
            return batch.inputs, labels.view(x.shape)

        return TensorMasker(mask)

    return make


def fixed_count(seed: int) -> TensorMasker:
    """The same number of positions in each window, drawn without replacement."""

    def mask(x: torch.Tensor) -> Pair:
        n_selected = (RATE * ordinary(x).sum(1, keepdim=True)).round().clamp(min=1)
        ranks = torch.rand(x.shape).masked_fill(~ordinary(x), 2.0).argsort(1).argsort(1)
        selected = (ranks < n_selected) & ordinary(x)
        return corrupted(x, selected), labels_of(x, selected)

    return TensorMasker(mask)


class BatchMasker:
    """A callable on a batch: a dictionary in, a dictionary out."""

    mask_token, padding_token, no_mask_tokens, n_tokens = MASK, PAD, [CLS, SEP], N_TOKENS

    def __call__(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        x = batch["input_ids"]
        selected = drawn(x)
        return {**batch, "input_ids": corrupted(x, selected), "labels": labels_of(x, selected)}


def collator(name: str) -> Callable[[int], Any]:
    return lambda seed: COLLATORS[name]()


IN_ONE_PROCESS = {"workers": 0}  # Folio's Masker has a generator of its own, and runs in the training process
CORRECT = [
    Correct("Folio's MLM", folio_mlm),
    Correct("Folio's Masker, random", folio_masker("random"), options=IN_ONE_PROCESS),
    Correct("Folio's Masker, span_characters", folio_masker("span_characters"), options=IN_ONE_PROCESS),
    Correct(
        "Folio's Masker, whole_word", folio_masker("whole_word"), frozenset({"position-dependent"}), IN_ONE_PROCESS
    ),
    Correct("fixed count", fixed_count),
    Correct("batch dict", lambda seed: BatchMasker()),
    Correct("collator", collator("default"), frozenset({"special-as-replacement"})),
    Correct("collator, [MASK] only", collator("mask_replace_prob=1, random_replace_prob=0")),
    Correct("collator, 30%", collator("mlm_probability=0.3, mask_replace_prob=1, random_replace_prob=0")),
    Correct("collator, whole words", collator("whole_word_mask=True")),
]
