"""A source of batches that mixes causal windows with masked ones."""

from typing import Any

import torch

from data.batch import Batch
from data.masked_windows import MaskedWindows

CAUSAL = "is_causal"  # an extra of causal batches only


class CausalWindows:
    """Until a share of the training budget is spent, a share of the batches is causal: nothing is
    masked, and the labels are all tokens but the first of a window."""

    def __init__(self, masked: MaskedWindows, until: float, share: float = 1.0):
        """`until` of the budget, `share` of the batches are causal."""
        self.masked = masked
        self.until = until
        self.share = share
        self.learns = masked.learns
        self.n_drawn = 0

    def draw(
        self, batch_size: int, seq_len: int, masking_prob: float, progress: float
    ) -> Batch:
        """A batch of causal or of masked windows, `[batch_size, seq_len]`."""
        n_causal_before = int(self.n_drawn * self.share)
        self.n_drawn += 1
        is_turn = int(self.n_drawn * self.share) > n_causal_before
        if progress >= self.until or not is_turn:
            return self.masked.draw(batch_size, seq_len, masking_prob, progress)

        drawn = self.masked.windows.draw(batch_size, seq_len)
        tokens = drawn.tokens
        places = torch.arange(tokens.numel(), device=tokens.device).view_as(tokens)
        is_causal = torch.ones(batch_size, dtype=torch.bool, device=tokens.device)
        return Batch(
            tokens,
            places[:, 1:],
            tokens[:, 1:],
            drawn.offsets,
            extras={CAUSAL: is_causal},
        )

    def observe(self, batch: Batch, losses: torch.Tensor) -> None:
        if CAUSAL not in batch.extras:
            self.masked.observe(batch, losses)

    def state_dict(self) -> dict[str, Any]:
        return {"masked": self.masked.state_dict(), "n_drawn": self.n_drawn}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.masked.load_state_dict(state["masked"])
        self.n_drawn = state["n_drawn"]
