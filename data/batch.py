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

    inputs: torch.Tensor  # [batch, seq_len] token ids, corrupted at the masked positions
    positions: torch.Tensor  # [batch, n] or [n]
    labels: torch.Tensor  # the original ids there, or IGNORED_LABEL; as many as positions
    offsets: torch.Tensor | None = None  # of these characters in the training text
    attention_mask: torch.Tensor | None = None  # [batch, seq_len] bool, False at padding
    # more tensors for an objective, each [batch, ...]: segments and pair_labels, for example
    extras: dict[str, torch.Tensor] = {}

    def tensors(self) -> list[torch.Tensor]:
        fields = [self.inputs, self.positions, self.labels, self.offsets, self.attention_mask]
        return [tensor for tensor in (*fields, *self.extras.values()) if tensor is not None]

    def copy(self) -> Self:
        return tree_map_only(torch.Tensor, torch.Tensor.clone, self)

    def to(self, device: torch.device) -> Self:
        if self.inputs.device == device:
            return self
        return tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), self)

    def part(self, windows: slice) -> Self:
        """The batch of some of the windows."""
        first_position = windows.start * self.inputs.shape[1]
        selected = self.positions_in(windows)
        mask = self.attention_mask
        return self._replace(
            inputs=self.inputs[windows],
            positions=self.positions[selected] - first_position,
            labels=self.labels[selected],
            offsets=None if self.offsets is None else self.offsets[selected],
            attention_mask=None if mask is None else mask[windows],
            extras={name: tensor[windows] for name, tensor in self.extras.items()},
        )

    def positions_in(self, windows: slice) -> slice | torch.Tensor:
        """The index of the positions that lie in some of the windows."""
        if self.positions.ndim == 2:
            return windows
        window = self.positions // self.inputs.shape[1]
        return (window >= windows.start) & (window < windows.stop)


class BatchSource(Protocol):
    """Draws the batches of a training. `data.masked_windows.MaskedWindows` is Folio's own.

    With several processes, each one draws the same batches and takes its share of their windows.
    A source that learns from the losses also has an attribute `learns = True` and a method
    `observe(batch, losses)`: `losses` are the model's, in nats, in the shape of `batch.positions`.
    """

    def draw(self, batch_size: int, seq_len: int, masking_prob: float, progress: float) -> Batch:
        """A batch with inputs `[batch_size, seq_len]`, on any device. `masking_prob` is the masking
        rate of the stage; `progress` is the share of the training budget that is spent."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides the batches still to be drawn, for checkpoints and to repeat a
        draw: numbers, strings, lists, dicts and tensors."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def check_batch(batch: Batch, batch_size: int, seq_len: int, n_tokens: int) -> None:
    """Raise ValueError, with a message of one line, unless a batch keeps the contract."""
    _expect(isinstance(batch, Batch), "it must return a data.batch.Batch")
    shape = (batch_size, seq_len)
    _expect(batch.inputs.shape == shape, f"inputs must be {list(shape)}: {_shape(batch.inputs)}")
    _expect(
        batch.positions.ndim == 1 or batch.positions.shape[:-1] == (batch_size,),
        f"positions must be [n] or [{batch_size}, n]: {_shape(batch.positions)}",
    )
    _expect(
        batch.labels.shape == batch.positions.shape,
        f"labels must have the shape of positions: {_shape(batch.labels)}",
    )
    for name in ("inputs", "positions", "labels"):
        tensor = getattr(batch, name)
        _expect(tensor.dtype == torch.int64, f"{name} must be int64: {tensor.dtype}")
    _expect(_all_below(batch.inputs, n_tokens), f"inputs must be ids from 0 to {n_tokens - 1}")
    labels = batch.labels[batch.labels != IGNORED_LABEL]
    _expect(_all_below(labels, n_tokens), f"labels must be ids from 0 to {n_tokens - 1}, or -100")
    _check_places(batch)
    if batch.attention_mask is not None:
        mask = batch.attention_mask
        _expect(mask.dtype == torch.bool, f"attention_mask must be bool: {mask.dtype}")
        _expect(mask.shape == shape, f"attention_mask must be {list(shape)}: {_shape(mask)}")
    for name, tensor in batch.extras.items():
        _expect(len(tensor) == batch_size, f"extras: {name} must be [{batch_size}, ...]")


def _check_places(batch: Batch) -> None:
    n_windows, seq_len = batch.inputs.shape
    positions = batch.positions
    _expect(
        _all_below(positions, n_windows * seq_len),
        f"positions must be indices into inputs.flatten(), below {n_windows * seq_len}",
    )
    if positions.ndim == 2:
        windows = torch.arange(n_windows, device=positions.device)[:, None]
        is_own = positions // seq_len == windows
        _expect(bool(is_own.all()), "row i of positions must lie in window i")


def _expect(is_kept: bool, message: str) -> None:
    if not is_kept:
        raise ValueError(message)


def _all_below(ids: torch.Tensor, n: int) -> bool:
    return bool(((ids >= 0) & (ids < n)).all())


def _shape(tensor: torch.Tensor) -> str:
    return f"not {list(tensor.shape)}"
