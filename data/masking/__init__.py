"""Masks for masked language modeling: which characters to hide, and what replaces them."""

from data.masking.corruption import Corruption
from data.masking.masker import IGNORED_LABEL, MaskedBatch, Masker, n_masked_in
from data.masking.mlm import MLM, IndependentMasker

__all__ = [
    "IGNORED_LABEL",
    "MLM",
    "Corruption",
    "IndependentMasker",
    "MaskedBatch",
    "Masker",
    "n_masked_in",
]
