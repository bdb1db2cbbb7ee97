"""Masked batches to logits at the masked positions.

Plain PyTorch. Nothing here knows of the data or of configs, nor of labml but for the adapter to labml_nn. Every
architecture is a module that is called with `inputs` `[batch, seq_len]` and `positions` `[n_masked]`, and returns
logits `[n_masked, n_tokens]`.
"""

from model.masked_language_model import MaskedLanguageModel
from model.modern import ModernEncoder

__all__ = ["MaskedLanguageModel", "ModernEncoder"]
