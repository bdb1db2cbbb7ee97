"""Masked batches to logits at the masked positions.

Plain PyTorch, except for the adapter to labml_nn. Every architecture is a module that is called
with `inputs` `[batch, seq_len]` and `positions`, indices into `inputs.flatten()` of any shape. It
returns logits `[*positions.shape, n_tokens]`.
"""

from model.masked_language_model import MaskedLanguageModel
from model.modern import ModernEncoder

__all__ = ["MaskedLanguageModel", "ModernEncoder"]
