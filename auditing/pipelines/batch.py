"""A pipeline's batch in the audit's terms: inputs, labels and further tensors by name, and logits at every position."""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from auditing.errors import TargetError, describe

Array = npt.NDArray[Any]
Call = Callable[..., Any]  # a function of the target's process by name: call(name, *arguments)

INPUTS = ("input_ids", "inputs", "input", "x", "src", "tokens")
LABELS = ("labels", "label", "targets", "target", "y", "tgt")
FORM = (
    "a batch must be a dict with input_ids and labels, or a tuple (inputs, labels, ...), all [batch, seq_len] of"
    " integers"
)


@dataclass(frozen=True)
class Batch:
    """A batch as arrays. Only tensors with the batch's size are in `others`."""

    inputs: Array  # [batch, seq_len] ids
    labels: Array  # [batch, seq_len] ids, or an ignored label
    others: dict[str, Array]  # such as attention_mask or position_ids, `[batch, ...]`


def tensor_names(batch: Any) -> tuple[dict[Any, Tensor], Any, Any]:
    """The tensors of a batch by key (or by number in a tuple), and the keys of the inputs and of the labels.

    Raises TargetError if there are none.
    """
    tensors: dict[Any, Tensor] = {}
    inputs: Any = None
    labels: Any = None
    if isinstance(batch, Mapping):
        tensors = {key: value for key, value in batch.items() if isinstance(value, Tensor)}
        inputs = next((name for name in INPUTS if name in tensors), None)
        labels = next((name for name in LABELS if name in tensors), None)
    elif isinstance(batch, tuple | list):
        tensors = {i: value for i, value in enumerate(batch) if isinstance(value, Tensor)}
        inputs, labels = (0 if 0 in tensors else None), (1 if 1 in tensors else None)
    if inputs is None or labels is None:
        raise TargetError(f"make_batches gave {describe(batch)}: {FORM}")
    x, y = tensors[inputs], tensors[labels]
    if x.dim() != 2 or y.shape != x.shape or x.is_floating_point() or y.is_floating_point():
        raise TargetError(f"make_batches gave {describe(batch)}: {FORM}")
    return tensors, inputs, labels


def read(batch: Any) -> Batch:
    """The arrays of a batch. Raises TargetError if it has another form."""
    tensors, inputs, labels = tensor_names(batch)
    size = len(tensors[inputs])
    others = {
        str(key): array(value)
        for key, value in tensors.items()
        if key not in (inputs, labels) and value.dim() and len(value) == size
    }
    return Batch(array(tensors[inputs]), array(tensors[labels]), others)


def changed(batch: Any, changes: Mapping[str, Array]) -> Any:
    """A copy of a batch with other values. The names are `inputs`, `labels` and those of `Batch.others`."""
    tensors, inputs, labels = tensor_names(batch)
    key_of = {str(key): key for key in tensors} | {"inputs": inputs, "labels": labels}
    new = {
        key_of[name]: torch.as_tensor(value).to(dtype=tensors[key_of[name]].dtype, device=tensors[key_of[name]].device)
        for name, value in changes.items()
    }
    if isinstance(batch, Mapping):
        other: Any = copy(batch)  # of the same type, such as a BatchEncoding
        for key, value in new.items():
            other[key] = value
        return other
    values = [new.get(i, value) for i, value in enumerate(batch)]
    return type(batch)(*values) if hasattr(batch, "_fields") else type(batch)(values)


def array(tensor: Tensor) -> Array:
    """A tensor as an array of its own; floats become float32."""
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.is_floating_point() else tensor).numpy().copy()


def check_output(output: Any, batch: Any, n_tokens: int) -> tuple[Tensor, Tensor]:
    """The loss and the logits of `loss_and_logits`. Raises TargetError if they have another form.

    The logits are `[batch, seq_len, n]` or, as of models that predict labelled positions only, `[n_labelled, n]`, with
    n of at least `n_tokens`.
    """
    tensors, inputs, _ = tensor_names(batch)
    called = f"loss_and_logits called with inputs {list(tensors[inputs].shape)}"
    form = f"it must return (loss, logits), a number and [batch, seq_len, {n_tokens}] or [n_labelled, {n_tokens}]"
    if not isinstance(output, tuple | list) or len(output) != 2:
        raise TargetError(f"{called} returned {describe(output)}: {form}")
    loss, logits = output
    shape = tuple(tensors[inputs].shape)
    if not (isinstance(loss, Tensor) and isinstance(logits, Tensor) and loss.numel() == 1 and logits.dim() in (2, 3)):
        raise TargetError(f"{called} returned {describe(tuple(output))}: {form}")
    if logits.shape[-1] < n_tokens or (logits.dim() == 3 and tuple(logits.shape[:2]) != shape):
        raise TargetError(f"{called} returned {describe(tuple(output))}: {form}")
    return loss, logits
