"""Folio's own source of batches: windows of the training text, masked."""

from typing import Any

import torch

from data.batch import Batch
from data.masking.masker import Masker
from data.masking.mlm import IndependentMasker
from data.windows import Windows
from data.windows.prefetch import Prefetched


class MaskedWindows:
    """Draws windows and masks them."""

    def __init__(
        self, windows: Windows | Prefetched, masker: Masker | IndependentMasker
    ):
        self.windows = windows
        self.masker = masker
        # whether the masks to come depend on the model's losses
        self.learns = masker.learns

    def draw(
        self, batch_size: int, seq_len: int, masking_prob: float, progress: float
    ) -> Batch:
        """A batch of masked windows, `[batch_size, seq_len]`."""
        drawn = self.windows.draw(batch_size, seq_len)
        documents = drawn.attention_mask
        batch = self.masker(
            drawn.tokens, drawn.offsets, masking_prob, progress, documents
        )
        return batch._replace(
            attention_mask=documents, begins=drawn.begins, extras=drawn.extras
        )

    def observe(self, batch: Batch, losses: torch.Tensor) -> None:
        self.masker.observe(batch, losses)  # type: ignore[union-attr]

    def state_dict(self) -> dict[str, Any]:
        return {
            "windows": self.windows.state_dict(),
            "masker": self.masker.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.windows.load_state_dict(state["windows"])
        self.masker.load_state_dict(state["masker"])
