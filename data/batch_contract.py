"""The contract of a source of batches: its protocol, and a check of the batches of a user's."""

from typing import Any, Protocol

import torch

from data.batch import IGNORED_LABEL, Batch


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


def check_batch(batch: Batch, batch_size: int, seq_len: int, n_tokens: int) -> None:
    """Raise ValueError, with a message of one line, unless a batch keeps the contract."""
    kind = type(batch).__name__
    _expect(isinstance(batch, Batch), f"it must be a data.batch.Batch, not {kind}")
    shape = (batch_size, seq_len)
    _expect(
        batch.inputs.shape == shape,
        f"inputs must be {list(shape)}: {_shape(batch.inputs)}",
    )
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

    _expect(
        _all_below(batch.inputs, n_tokens),
        f"inputs must be ids from 0 to {n_tokens - 1}",
    )
    labels = batch.labels[batch.labels != IGNORED_LABEL]
    _expect(
        _all_below(labels, n_tokens),
        f"labels must be ids from 0 to {n_tokens - 1}, or -100",
    )
    _check_places(batch)
    if batch.attention_mask is not None:
        mask = batch.attention_mask
        _expect(
            mask.dtype in (torch.int64, torch.bool),
            f"attention_mask must be int64 or bool: {mask.dtype}",
        )
        _expect(
            mask.shape == shape, f"attention_mask must be {list(shape)}: {_shape(mask)}"
        )

    for name, tensor in batch.extras.items():
        _expect(
            len(tensor) == batch_size, f"extras: {name} must be [{batch_size}, ...]"
        )


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
