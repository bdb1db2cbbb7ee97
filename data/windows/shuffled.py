"""Training windows in epochs, as in the annotated labml experiment."""

from typing import Any

import torch

from data.text.stored import StoredIds
from data.windows import Windows


class ShuffledWindows(Windows):
    """Divides the text into cells of `seq_len`. Each epoch visits every cell once in random order,
    and each window starts at a random offset inside its cell."""

    def __init__(self, ids: torch.Tensor | StoredIds, *, seed: int):
        super().__init__(ids, seed=seed)
        # not yet visited in this epoch
        self._cells = torch.empty(0, dtype=torch.int64, device=ids.device)
        self._cell_len = 0

    def starts(self, batch_size: int, seq_len: int) -> torch.Tensor:
        if self._cell_len != seq_len:  # a new stage begins its own epoch
            self._cells = self._cells[:0]
            self._cell_len = seq_len
        while len(self._cells) < batch_size:
            n_cells = (len(self.ids) - 1) // seq_len
            epoch = torch.randperm(
                n_cells, generator=self.generator, device=self.ids.device
            )
            self._cells = torch.cat([self._cells, epoch])
        cells = self._cells[:batch_size]
        self._cells = self._cells[batch_size:]
        starts = cells * seq_len + self._integers(seq_len, batch_size)
        return starts.clamp(max=len(self.ids) - seq_len)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"cells": self._cells, "cell_len": self._cell_len}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._cells = state["cells"].to(self.ids.device)
        self._cell_len = state["cell_len"]
