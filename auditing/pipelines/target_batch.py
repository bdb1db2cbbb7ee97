"""A pipeline's batch in the audit's terms: inputs, labels and further tensors by name."""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from auditing.errors import TargetError, describe
from auditing.pipelines.play_tokens import Array

Call = Callable[..., Any]  # a function of the target's process by name: call(name, *arguments)

INPUTS = ("input_ids", "inputs", "input", "x", "src", "tokens", 0)  # 0 and 1: of a tuple
LABELS = ("labels", "label", "targets", "target", "y", "tgt", 1)
FORM = "a batch must be a dict with input_ids and labels, or a tuple (inputs, labels, ...), all integers [batch, seq_len]"


@dataclass(frozen=True)
class Batch:
    """A batch as arrays."""

    inputs: Array  # [batch, seq_len] ids
    labels: Array  # [batch, seq_len] ids, or an ignored label
    others: dict[str, Array]  # all further tensors, such as attention_mask or position_ids

    @property
    def arrays(self) -> dict[str, Array]:
        """All arrays by name."""
        return {"inputs": self.inputs, "labels": self.labels, **self.others}


def tensor_names(batch: Any) -> tuple[dict[Any, Tensor], Any, Any]:
    """The tensors of a batch by key (or by number in a tuple), and the keys of the inputs and of the labels.

    Raises TargetError if it has another form.
    """
    is_dict = isinstance(batch, Mapping)
    pairs = batch.items() if is_dict else enumerate(batch) if isinstance(batch, tuple | list) else ()
    tensors: dict[Any, Tensor] = {key: value for key, value in pairs if isinstance(value, Tensor)}
    keys = [next((key for key in names if key in tensors), None) for names in (INPUTS, LABELS)]
    pair = [tensors[key] for key in keys if key is not None]
    is_right = len(pair) == 2 and pair[0].dim() == 2 and pair[0].shape == pair[1].shape
    if not is_right or any(tensor.is_floating_point() for tensor in pair):
        raise TargetError(f"make_batches gave {describe(batch)}: {FORM}")
    return tensors, *keys


def read(batch: Any) -> Batch:
    """The arrays of a batch. Raises TargetError if it has another form."""
    tensors, x, y = tensor_names(batch)
    others = {str(key): array(value) for key, value in tensors.items() if key not in (x, y)}
    return Batch(array(tensors[x]), array(tensors[y]), others)


def changed(batch: Any, changes: Mapping[str, Array]) -> Any:
    """A copy of a batch with other values, by the names of `Batch.arrays`."""
    tensors, x, y = tensor_names(batch)
    key_of = {str(key): key for key in tensors} | {"inputs": x, "labels": y}
    new = {key_of[name]: torch.as_tensor(value).to(tensors[key_of[name]]) for name, value in changes.items()}
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
    """The loss and the logits of `loss_and_logits`. Raises TargetError if they have another form."""
    tensors, x, _ = tensor_names(batch)
    shape = tensors[x].shape
    loss, logits = output if isinstance(output, tuple | list) and len(output) == 2 else (None, None)
    is_loss = isinstance(loss, Tensor) and loss.numel() == 1
    is_wide = isinstance(logits, Tensor) and logits.dim() in (2, 3) and logits.shape[-1] >= n_tokens
    if not is_loss or not is_wide or (logits.dim() == 3 and logits.shape[:2] != shape):
        raise TargetError(
            f"loss_and_logits called with inputs {list(shape)} returned {describe(output)}: it must return (loss,"
            f" logits), a number and [batch, seq_len, {n_tokens}] or [n_labelled, {n_tokens}]"
        )
    return loss, logits
