"""Training windows, gathered on the device in one indexing operation."""

from typing import Any, NamedTuple

import torch

from data.generators import restore_generator
from data.stored import StoredIds


class Pairs(NamedTuple):
    """The further facts of windows that are pairs of text: see `data.pairs`."""

    segments: torch.Tensor  # [batch, seq_len] 0 for [CLS] A [SEP], 1 for B [SEP]
    labels: torch.Tensor  # [batch] bool: nsp: does B follow A? sop: are A and B in their order?


class WindowBatch(NamedTuple):
    """Windows of the text."""

    tokens: torch.Tensor  # [batch, seq_len] ids
    offsets: torch.Tensor  # [batch, seq_len] the offset of each token in the text
    pairs: Pairs | None = None


class Windows:
    """Draws windows of the training text.

    `sampling="random"` draws every start independently. `sampling="shuffled"` makes epochs as the annotated labml
    experiment does: the text is divided into cells of `seq_len`, each epoch visits every cell once in random order,
    and each window starts at a random offset inside its cell.
    """

    def __init__(self, ids: torch.Tensor | StoredIds, *, seed: int, sampling: str = "random"):
        """`ids` `[n_chars]` are the text; the windows are on the same device."""
        self.ids = ids
        self.sampling = sampling
        self.generator = torch.Generator(device=ids.device).manual_seed(seed)
        self._cells = torch.empty(0, dtype=torch.int64, device=ids.device)  # not yet visited in this epoch
        self._cell_len = 0

    def draw(self, batch_size: int, seq_len: int) -> WindowBatch:
        """A batch of windows, `[batch_size, seq_len]`."""
        starts = self._shuffled_starts if self.sampling == "shuffled" else self._random_starts
        offsets = starts(batch_size, seq_len)[:, None] + torch.arange(seq_len, device=self.ids.device)
        return WindowBatch(self.ids[offsets], offsets)

    def _random_starts(self, batch_size: int, seq_len: int) -> torch.Tensor:
        return self._integers(len(self.ids) - seq_len + 1, batch_size)

    def _shuffled_starts(self, batch_size: int, seq_len: int) -> torch.Tensor:
        if self._cell_len != seq_len:  # a new stage begins its own epoch
            self._cells, self._cell_len = self._cells[:0], seq_len
        while len(self._cells) < batch_size:
            n_cells = (len(self.ids) - 1) // seq_len
            epoch = torch.randperm(n_cells, generator=self.generator, device=self.ids.device)
            self._cells = torch.cat([self._cells, epoch])
        cells, self._cells = self._cells[:batch_size], self._cells[batch_size:]
        starts = cells * seq_len + self._integers(seq_len, batch_size)
        return starts.clamp(max=len(self.ids) - seq_len)

    def _integers(self, high: int, n: int) -> torch.Tensor:
        return torch.randint(high, (n,), generator=self.generator, device=self.ids.device)

    def state_dict(self) -> dict[str, Any]:
        """The state that decides all windows still to be drawn."""
        return {"generator": self.generator.get_state(), "cells": self._cells, "cell_len": self._cell_len}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        restore_generator(self.generator, state["generator"])
        self._cells, self._cell_len = state["cells"].to(self.ids.device), state["cell_len"]
