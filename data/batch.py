"""A batch, which one training step reads, and the protocol of the sources that draw batches."""

from typing import Any, NamedTuple, Protocol, Self

import torch
from torch.utils._pytree import tree_map_only

IGNORED_LABEL = -100  # PyTorch's cross-entropy ignores it; id 0 is a real character


class Batch(NamedTuple):
    """Windows with masked positions.

    `positions` are indices into `inputs.flatten()`. There are two shapes: `[batch, n]`, whose row i
    lies in window i, is faster. `[n]` has any positions in any order.
    """

    inputs: (
        torch.Tensor
    )  # [batch, seq_len] token ids, corrupted at the masked positions
    positions: torch.Tensor  # [batch, n] or [n]
    labels: (
        torch.Tensor
    )  # the original ids there, or IGNORED_LABEL; as many as positions
    offsets: torch.Tensor | None = None  # of these characters in the training text
    # [batch, seq_len] the number of each token's document in its window, from 1 on, and 0
    # at padding (or True and False); None: one document without padding
    attention_mask: torch.Tensor | None = None
    # more tensors for an objective, each [batch, ...]: segments and pair_labels, for example
    extras: dict[str, torch.Tensor] = {}

    def to(self, device: torch.device) -> Self:
        if self.inputs.device == device:
            return self
        return tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), self)


class BatchSource(Protocol):
    """Draws the batches of a training. `data.masked_windows.MaskedWindows` is Folio's own.

    With several processes, each one draws the same batches and takes its share of their windows.
    A source that learns from the losses also has an attribute `learns = True` and a method
    `observe(batch, losses)`: `losses` are the model's, in nats, in the shape of `batch.positions`.
    """

    def draw(
        self, batch_size: int, seq_len: int, masking_prob: float, progress: float
    ) -> Batch:
        """A batch with inputs `[batch_size, seq_len]`, on any device. `masking_prob` is the masking
        rate of the stage; `progress` is the share of the training budget that is spent."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides the batches still to be drawn, for checkpoints and to repeat a
        draw: numbers, strings, lists, dicts and tensors."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...
