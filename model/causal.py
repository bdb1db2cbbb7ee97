"""A masked language model that can also read from left to right only, for causal objectives."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from model.masked_language_model import MaskedLanguageModel
from model.modern import ModernEncoder, rotary_table


class CausalEncoder(ModernEncoder):
    """The same weights in two directions of attention. Without n-grams, which see later tokens."""

    def forward_causal(self, inputs: Tensor) -> Tensor:
        """Vectors `[batch, seq_len, d_model]`, each of which depends on no later token."""
        x = self.embedded(inputs)
        seq_len = x.shape[1]
        rotary = rotary_table(seq_len, self.d_head, x.device)
        is_seen = torch.ones(seq_len, seq_len, dtype=torch.bool, device=x.device)
        x = self.dropout(self.embedding_norm(x))
        for layer in self.layers:
            x = layer(x, rotary, mask=is_seen.tril())
        return self.final_norm(x)


class CausalModel(MaskedLanguageModel):
    """Predicts masked tokens, and the next ones."""

    encoder: CausalEncoder

    def __init__(self, encoder: CausalEncoder, is_shifted: bool = False):
        """With `is_shifted`, the vector of a token predicts the next one in masked windows too
        (Charpentier and Samuel 2024)."""
        super().__init__(encoder)
        self.is_shifted = is_shifted

    def forward(
        self,
        inputs: Tensor,
        positions: Tensor | None = None,
        attention_mask: Tensor | None = None,
        read: Callable[[Tensor], Any] | None = None,
        **begins: Tensor,
    ) -> Any:
        """As MaskedLanguageModel. The first token of a window, which none precedes, is read from
        its own vector."""
        if self.is_shifted:
            seq_len = inputs.shape[1]
            if positions is None:
                positions = torch.arange(inputs.numel(), device=inputs.device)
            positions = positions - (positions % seq_len > 0).long()
        return super().forward(inputs, positions, attention_mask, read, **begins)

    def forward_causal(self, inputs: Tensor) -> Tensor:
        """Logits `[batch, seq_len - 1, n_tokens]` of all tokens but the first, each from the tokens
        before it."""
        return self.predict(self.encoder.forward_causal(inputs)[:, :-1])
