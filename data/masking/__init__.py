"""Masks for masked language modeling: which characters to hide, and what replaces them."""

from data.masking.corruption import Corruption
from data.masking.masker import Masker, n_masked_in
from data.masking.mlm import MLM, IndependentMasker
from data.masking.segment_masker import SegmentMasker

__all__ = [
    "MLM",
    "Corruption",
    "IndependentMasker",
    "Masker",
    "SegmentMasker",
    "n_masked_in",
]
