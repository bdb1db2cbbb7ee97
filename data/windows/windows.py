"""Training windows, gathered on the device in one indexing operation."""

from typing import Any, NamedTuple

import torch

from data.generators import restore_generator
from data.text.stored import StoredIds


class WindowBatch(NamedTuple):
    """Windows of the text."""

    tokens: torch.Tensor  # [batch, seq_len] ids
    offsets: torch.Tensor  # [batch, seq_len] the offset of each token in the text
    # [batch, seq_len] the number of each token's document in its window, from 1 on, and 0
    # at padding (or True and False); None: one document without padding
    attention_mask: torch.Tensor | None = None
    # [n] where documents begin in the flattened windows
    begins: torch.Tensor | None = None
    extras: dict[str, torch.Tensor] = {}  # for a second objective, each [batch, ...]


class Windows:
    """Draws windows of the training text, each one independently; subclasses draw others."""

    def __init__(self, ids: torch.Tensor | StoredIds, *, seed: int):
        """`ids` `[n_chars]` are the text; the windows are on the same device."""
        self.ids = ids
        self.generator = torch.Generator(device=ids.device).manual_seed(seed)

    def draw(self, batch_size: int, seq_len: int) -> WindowBatch:
        """A batch of windows, `[batch_size, seq_len]`."""
        offsets = self.starts(batch_size, seq_len)[:, None] + torch.arange(
            seq_len, device=self.ids.device
        )
        return WindowBatch(self.ids[offsets], offsets)

    def starts(self, batch_size: int, seq_len: int) -> torch.Tensor:
        """The offsets at which the windows of a batch begin, `[batch_size]`."""
        return self._integers(len(self.ids) - seq_len + 1, batch_size)

    def _integers(self, high: int, n: int) -> torch.Tensor:
        return torch.randint(
            high, (n,), generator=self.generator, device=self.ids.device
        )

    def state_dict(self) -> dict[str, Any]:
        """The state that decides all windows still to be drawn."""
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        restore_generator(self.generator, state["generator"])
