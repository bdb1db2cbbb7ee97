"""A batch, which one training step reads. `data.batch_contract` has the protocol of its sources."""

from typing import NamedTuple, Self

import torch
from torch.utils._pytree import tree_map_only

IGNORED_LABEL = -100  # PyTorch's cross-entropy ignores it; id 0 is a real character


class Batch(NamedTuple):
    """Windows with masked positions.

    `positions` are indices into `inputs.flatten()`. There are two shapes: `[batch, n]`, whose row i
    lies in window i, is faster. `[n]` has any positions in any order.
    """

    # [batch, seq_len] token ids, corrupted at the masked positions
    inputs: torch.Tensor
    positions: torch.Tensor  # [batch, n] or [n]
    # the original ids there, or IGNORED_LABEL; as many as positions
    labels: torch.Tensor
    offsets: torch.Tensor | None = None  # of these characters in the training text
    # [batch, seq_len] the number of each token's document in its window, from 1 on, and 0
    # at padding (or True and False); None: one document without padding
    attention_mask: torch.Tensor | None = None
    # [n] where documents begin in inputs.flatten(), for Folio's model
    begins: torch.Tensor | None = None
    # more tensors for an objective, each [batch, ...]: segments and pair_labels, for example
    extras: dict[str, torch.Tensor] = {}

    def to(self, device: torch.device) -> Self:
        if self.inputs.device == device:
            return self
        return tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), self)
