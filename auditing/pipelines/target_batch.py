"""A pipeline's tokens and batches in the audit's terms: inputs, labels and further tensors by name."""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from auditing.errors import TargetError, describe
from auditing.masks.tokens import TokenIds

Array = npt.NDArray[Any]
Call = Callable[..., Any]  # a function of the target's process by name: call(name, *arguments)

SPECIAL = ("[PAD]", "[MASK]", "[CLS]", "[SEP]", "[UNK]")
INPUTS = ("input_ids", "inputs", "input", "x", "src", "tokens", 0)  # 0 and 1: of a tuple
LABELS = ("labels", "label", "targets", "target", "y", "tgt", 1)
FORM = "a batch must be a dict with input_ids and labels, or a tuple (inputs, labels, ...), ids [batch, seq_len]"


class Tokens:
    """Ids from 0 to `n_tokens` - 1. The audit itself has the characters first, so those are below `n_ordinary`."""

    def __init__(self, characters: str, special_first: bool = False):
        """`special_first` is for targets that rely on [PAD] being 0."""
        self.names = [*SPECIAL, *characters] if special_first else [*characters, *SPECIAL]  # the text of each id
        self.characters, self.n_ordinary, self.n_tokens = characters, len(characters), len(self.names)
        self.first_character = len(SPECIAL) if special_first else 0
        self.padding, self.mask, self.cls, self.sep, self.unknown = (self.names.index(name) for name in SPECIAL)

    @property
    def ids(self) -> TokenIds:
        """The audit's ids, as for an audit of masks."""
        special = tuple(range(self.n_ordinary, self.n_tokens))
        padding, mask, cls, sep, unknown = special
        return TokenIds(self.n_tokens, mask, padding, special, (cls, sep), unknown)

    def of_audit(self, ids: Array, by: int = 1) -> Array:
        """These ids of the audit's, or back; other values, such as an ignored label of -100, stay."""
        shifted = (ids + by * self.first_character) % self.n_tokens
        return np.where((ids >= 0) & (ids < self.n_tokens), shifted, ids)

    def is_ordinary(self, ids: Array) -> Array:
        """Whether the audit's ids are characters."""
        return (ids >= 0) & (ids < self.n_ordinary)


@dataclass(frozen=True)
class Batch:
    """A batch as arrays."""

    inputs: Array  # [batch, seq_len] ids
    labels: Array  # [batch, seq_len] ids, or an ignored label
    others: dict[str, Array]  # all further tensors, such as attention_mask or position_ids

    @property
    def arrays(self) -> dict[str, Array]:
        """All arrays by name."""
        return {"inputs": self.inputs, "labels": self.labels} | self.others


def tensor_names(batch: Any) -> tuple[dict[Any, Tensor], Any, Any]:
    """The tensors of a batch by key or number, and the keys of the inputs and labels. Raises TargetError if not."""
    given: Any = dict(enumerate(batch)) if isinstance(batch, tuple | list) else batch
    pairs = given.items() if isinstance(given, Mapping) else ()
    tensors: dict[Any, Tensor] = {key: value for key, value in pairs if isinstance(value, Tensor)}
    x, y = (next((key for key in names if key in tensors), None) for names in (INPUTS, LABELS))
    pair = [tensors[key] for key in (x, y) if key is not None and not tensors[key].is_floating_point()]
    if len(pair) < 2 or pair[0].dim() != 2 or pair[0].shape != pair[1].shape:
        raise TargetError(f"make_batches gave {describe(batch)}: {FORM}")
    return tensors, x, y


def read(batch: Any, tokens: Tokens) -> Batch:
    """The arrays of a batch, with the audit's ids. Raises TargetError if it has another form."""
    tensors, x, y = tensor_names(batch)
    inputs, labels = (tokens.of_audit(array(tensors[key]), by=-1) for key in (x, y))
    return Batch(inputs, labels, {str(key): array(value) for key, value in tensors.items() if key not in (x, y)})


def changed(batch: Any, changes: Mapping[str, Array], tokens: Tokens) -> Any:
    """A copy of a batch with other values, by the names `inputs`, `labels` and those of `Batch.others`."""
    tensors, x, y = tensor_names(batch)
    key_of = {str(key): key for key in tensors} | {"inputs": x, "labels": y}
    new = {}
    for name, value in changes.items():
        of_target = tokens.of_audit(value) if name in ("inputs", "labels") else value
        new[key_of[name]] = torch.as_tensor(of_target).to(tensors[key_of[name]])
    if not isinstance(batch, Mapping):
        values = [new.get(i, value) for i, value in enumerate(batch)]
        return type(batch)(*values) if hasattr(batch, "_fields") else type(batch)(values)
    other: Any = copy(batch)  # of the same type, such as a BatchEncoding
    for key, tensor in new.items():
        other[key] = tensor
    return other


def array(tensor: Tensor) -> Array:
    """A tensor as an array of its own; floats become float32."""
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.is_floating_point() else tensor).numpy().copy()
