"""Checkpoints: weights and training state in one safetensors file, which is read without executing
anything.

Weights have their own names, and the tensors of the state names that begin with `state/`. The rest
of the state is JSON in the metadata, beside a hash of everything.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from runs.errors import InputError, StoppedError
from runs.files import flush, written_atomically
from runs.hardware import processor
from runs.schema import checked

# `new` becomes `last`. Whenever a process is killed, the first of these that can be read is the
# latest checkpoint.
NAMES = ("new.safetensors", "last.safetensors", "previous.safetensors")
FORMAT = 4  # of the state
TENSOR = "$tensor"  # in JSON: its value is the name of a tensor
ITEMS = "$items"  # in JSON: a dict with keys that are not strings


def is_sharded(tensor: Any) -> bool:
    """Whether a tensor is one of PyTorch's DTensors, whose import takes a second: each process has
    some of its rows."""
    return hasattr(tensor, "full_tensor")


def has_shards(tensors: Iterable[Any]) -> bool:
    return any(is_sharded(tensor) for tensor in tensors)


class CheckpointError(InputError):
    """A checkpoint cannot be read; the message is one line for the user."""


class Checkpoint(NamedTuple):
    """The content of a file."""

    path: Path
    weights: dict[str, torch.Tensor]
    state: dict[str, Any]


class Content(NamedTuple):
    """The content of a checkpoint to write: copies on the CPU, which do not change meanwhile, and
    sharded tensors."""

    tensors: dict[str, torch.Tensor]
    text: str

    @classmethod
    def of(
        cls, weights: Mapping[str, torch.Tensor], state: Mapping[str, Any]
    ) -> "Content":
        """The state holds tensors, numbers, strings, None, and lists and dicts of them; tuples
        become lists. Raises StoppedError, which names its place, for anything else."""
        tensors = dict(weights)
        text = json.dumps(_packed({**state, "format": FORMAT}, tensors, "state"))
        return cls(
            {name: _copy(tensor.detach()) for name, tensor in tensors.items()}, text
        )

    def save(self, path: Path) -> None:
        """Write a checkpoint atomically. Raises OSError."""
        metadata = {"state": self.text, "sha256": digest(*self)}
        with written_atomically(path) as temporary:
            try:
                save_file(self.tensors, temporary, metadata)
            except SafetensorError as error:
                raise _os_error(error) from error


def _os_error(error: SafetensorError) -> OSError:
    """The error of the system that a message of safetensors ends with, such as a full disk."""
    number = re.search(r"os error (\d+)", str(error))
    if number is None:
        return OSError(str(error))
    return OSError(int(number[1]), os.strerror(int(number[1])))


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy on the CPU, also because safetensors refuses tensors that share memory, as a decoder
    tied to the embedding does; a sharded tensor as it is."""
    if is_sharded(tensor):
        return tensor
    return tensor.to("cpu", copy=True, memory_format=torch.contiguous_format)


def load_checkpoint(path: Path) -> Checkpoint:
    """Map what `Content.save` wrote: each tensor is read when it is used, and changing it changes no
    file. Replacing the file meanwhile is safe. Raises CheckpointError if it is missing or damaged."""
    if not path.is_file():
        raise CheckpointError(f"cannot read {path} (no such file)")
    try:
        tensors, metadata = map_file(path)
        text = metadata["state"]
        is_whole = metadata["sha256"] == digest(tensors, text)
    except OSError as error:
        raise CheckpointError(
            f"cannot read {path} ({error.strerror or error})"
        ) from error
    except (SafetensorError, LookupError) as error:
        raise CheckpointError(
            f"{path} is damaged: it is not a whole checkpoint"
        ) from error

    if not is_whole:
        raise CheckpointError(f"{path} is damaged: its content does not match its hash")
    try:
        state = json.loads(text, object_hook=partial(_unpacked, tensors))
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is damaged: its state is not one of Folio's"
        ) from error

    checked(state, {}, str(path), CheckpointError)
    weights = {
        name: each for name, each in tensors.items() if not name.startswith("state/")
    }
    return Checkpoint(path, weights, state)


def map_file(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """The tensors of a safetensors file, which are read from it when they are used, and its
    metadata."""
    with safe_open(path, "pt") as file:
        return {
            name: file.get_tensor(name) for name in file.offset_keys()
        }, file.metadata() or {}


def load_weights(path: Path) -> dict[str, torch.Tensor]:
    """The weights of a checkpoint. Raises CheckpointError if it is missing or damaged."""
    return load_checkpoint(path).weights


def put_weights(
    load: Callable[[Mapping[str, torch.Tensor]], Any], checkpoint: Checkpoint
) -> None:
    """Load the weights of a checkpoint. Raises CheckpointError if one is NaN, or if they are those
    of a different model."""
    for name, weight in checkpoint.weights.items():
        if weight.isnan().any():
            raise CheckpointError(f"{checkpoint.path} is damaged: {name} holds NaN")
    try:
        load(checkpoint.weights)
    except RuntimeError as error:
        message = f"{checkpoint.path} holds the weights of a different model"
        raise CheckpointError(message) from error


def save_last(folder: Path, save: Callable[[Path], None]) -> None:
    """Have `save` write `last`; the earlier `last` becomes `previous` once the new one has been
    read back.

    Raises OSError, for example if the disk is full, with `last` and `previous` unchanged.
    """
    new, last, previous = (folder / name for name in NAMES)
    save(new)
    check_written(new)

    if last.exists():
        os.replace(last, previous)
    os.replace(new, last)
    flush(folder)


def check_written(path: Path) -> None:
    """Raise OSError unless a new file holds the content that was hashed before it was written.

    Each tensor is mapped alone, so reading them back does not take the memory of them all.
    """
    try:
        with safe_open(path, "pt") as file:
            names = sorted(file.keys())
            metadata = file.metadata()
        sha256 = hashlib.sha256(metadata["state"].encode())
        for name in names:
            with safe_open(path, "pt") as file:
                hash_tensor(sha256, name, file.get_tensor(name))
    except (SafetensorError, LookupError, TypeError) as error:
        raise OSError(f"{path} is damaged: it is not a whole checkpoint") from error
    if sha256.hexdigest() != metadata["sha256"]:
        raise OSError(f"{path} is damaged: its content does not match its hash")


def has_checkpoint(folder: Path) -> bool:
    """Whether there is a checkpoint to resume from."""
    return any((folder / name).exists() for name in NAMES)


def load_last(folder: Path) -> Checkpoint:
    """The latest whole checkpoint. Raises CheckpointError if there is none, with the reason why the
    latest file is not one."""
    if not has_checkpoint(folder):
        raise CheckpointError(f"{folder} holds no checkpoint to resume from")
    reasons = []
    for name in NAMES:
        try:
            if (folder / name).exists():
                return _load_resumable(folder / name)
        except CheckpointError as error:
            reasons.append(error)

    raise reasons[0]


def _load_resumable(path: Path) -> Checkpoint:
    checkpoint = load_checkpoint(path)
    if checkpoint.state.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} does not have format {FORMAT}: resume with the version that trained the run"
        )
    return checkpoint


def environment(
    device: torch.device, compile: bool, autocast: bool, n_processes: int
) -> dict[str, Any]:
    """The versions and settings that a bit-exact resume depends on, besides the training state."""
    return {
        "torch": str(torch.__version__),  # its own type is not plain data
        "numpy": np.__version__,
        "device": torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else device.type,
        "processor": processor(),
        "threads": torch.get_num_threads(),
        "training.compile": compile,
        "training.precision": "bfloat16" if autocast else "float32",
        "processes": n_processes,
    }


def _packed(value: Any, tensors: dict[str, torch.Tensor], name: str) -> Any:
    """The value with this name as JSON can hold it; adds its tensors to `tensors`, with the names
    of their places."""
    if isinstance(value, torch.Tensor):
        tensors[name] = value
        return {TENSOR: name}
    if isinstance(value, list | tuple):
        return [_packed(each, tensors, f"{name}/{i}") for i, each in enumerate(value)]
    if isinstance(value, dict):
        items = {
            key: _packed(each, tensors, f"{name}/{key}") for key, each in value.items()
        }
        is_plain = all(
            isinstance(key, str) and not key.startswith("$") for key in items
        )
        return items if is_plain else {ITEMS: list(items.items())}
    if value is not None and not isinstance(value, str | int | float):
        raise StoppedError(f"cannot save {name}: it is a {type(value).__name__}")
    return value


def _unpacked(tensors: Mapping[str, torch.Tensor], packed: dict[str, Any]) -> Any:
    """The tensor or the dict that `_packed` has turned into `packed`."""
    if TENSOR in packed:
        return tensors[packed[TENSOR]]
    return dict(packed.get(ITEMS, packed))


def digest(tensors: Mapping[str, torch.Tensor], text: str) -> str:
    """The hash of everything in a checkpoint."""
    sha256 = hashlib.sha256(text.encode())
    for name, tensor in sorted(tensors.items()):
        hash_tensor(sha256, name, tensor)
    return sha256.hexdigest()


def hash_tensor(sha256: Any, name: str, tensor: torch.Tensor) -> None:
    sha256.update(f"{name} {tensor.dtype} {list(tensor.shape)} ".encode())
    sha256.update(tensor.flatten().view(torch.uint8).numpy().data)
