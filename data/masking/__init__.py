"""Masks for masked language modelling: which characters to select, and what replaces them."""

from data.masking.masker import IGNORED_LABEL, MLM, Corruption, IndependentMasker, MaskedBatch, Masker, n_masked_in

__all__ = ["IGNORED_LABEL", "MLM", "Corruption", "IndependentMasker", "MaskedBatch", "Masker", "n_masked_in"]
