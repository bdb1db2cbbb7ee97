"""Checkpoints: the weights as safetensors, and the rest of the training state beside them.

A checkpoint is two files, which cannot be replaced at once. So each file can prove that it is whole: the weights carry
a hash of their tensors, the state a hash of its bytes and that of its weights. Whenever a process is killed, there is a
state with its weights among `last`, `previous` and `new`, the checkpoint that was about to become `last`.
"""

import hashlib
import io
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import nn

from distributed.sharding import load_whole
from runs.errors import InputError
from runs.files import flush, read_bytes, write_atomically
from runs.schema import checked
from training.objective import StepSums

HASH = "sha256"
DIGEST_SIZE = hashlib.sha256().digest_size
NEW = "new"  # the name of a checkpoint that is not yet known to be whole
FORMAT = 2  # of STATE


def is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**63


def is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < float("inf")


def is_scalar(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.shape == ()


POSITION = {"step": is_count, "chars": is_count, "seconds": is_seconds}
STATE = {  # Trainer.state_dict(), the environment, and the sizes of the run's files
    **POSITION,
    "wall_seconds": is_seconds,
    "n_evaluations": is_count,
    "best_loss": lambda loss: isinstance(loss, float) and loss == loss,  # infinite before the first evaluation
    "warnings": [str],
    # Earlier versions saved a list of sums.
    "interval": {"start": POSITION, "sums": (dict.fromkeys(StepSums._fields, is_scalar), [is_scalar])},
    "training_step": dict,
    "knobs": {"knobs": dict, "is_changed_by_hand": bool},
    "environment": dict,
    "sizes": dict,  # RunFolder.sizes()
    "weights": str,  # hash
}


class CheckpointError(InputError):
    """A checkpoint cannot be read; the message is one line for the user."""


@dataclass(frozen=True)
class Checkpoint:
    """The result of `load_last`."""

    weights: dict[str, torch.Tensor]
    state: dict[str, Any]
    name: str  # of the file that holds the state


def save_weights(path: Path, weights: Mapping[str, torch.Tensor]) -> str:
    """Write weights by name atomically. Returns their hash. Raises OSError."""
    # Copies, because safetensors refuses tensors that share memory, as a decoder tied to the embedding does.
    copied: dict[str, Any] = {"device": "cpu", "copy": True, "memory_format": torch.contiguous_format}
    copies = {name: tensor.detach().to(**copied) for name, tensor in weights.items()}
    digest = _hash(copies)
    write_atomically(path, save(copies, metadata={HASH: digest}))
    return digest


def load_weights(path: Path) -> dict[str, torch.Tensor]:
    """Read what `save_weights` wrote. Raises CheckpointError if it is missing or damaged."""
    content = _read(path)
    try:
        weights = load(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        written = header["__metadata__"][HASH]
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is damaged: it is not a whole safetensors file") from error
    if written != _hash(weights):
        raise CheckpointError(f"{path} is damaged: the weights do not match their hash")
    return weights


def put_weights(model: nn.Module, weights: Mapping[str, torch.Tensor], source: Path) -> None:
    """Load weights into a model. Raises CheckpointError if they are those of a different model."""
    try:  # without communication, whose errors are others
        load_whole(model, weights)
    except RuntimeError as error:
        raise CheckpointError(f"{source} holds the weights of a different model") from error


def save_last(folder: Path, weights: Mapping[str, torch.Tensor], state: Mapping[str, Any]) -> None:
    """Save a checkpoint as `last`; the earlier `last` becomes `previous` once the new one has been read back.

    Raises OSError, for example if the disk is full, with `last` and `previous` unchanged.
    """
    try:
        weights_path, state_path = _paths(folder, NEW)
        digest = save_weights(weights_path, weights)
        save_state(state_path, {**state, "weights": digest})
        if load_state(state_path)["weights"] != _hash(load_weights(weights_path)):
            raise CheckpointError(f"{weights_path} does not belong to its state")
    except CheckpointError as error:
        raise OSError(str(error)) from error
    # The new checkpoint is whole from here on, and every rename keeps one whole checkpoint.
    for before, after in (("last", "previous"), (NEW, "last")):
        for path in _paths(folder, before):
            if path.exists():
                os.replace(path, folder / f"{after}{path.suffix}")
    flush(folder)


def save_best(folder: Path, weights: Mapping[str, torch.Tensor], state: Mapping[str, Any]) -> None:
    """Save the weights with the lowest validation loss, and their step and loss. Raises OSError."""
    save_weights(folder / "best.safetensors", weights)
    save_state(folder / "best.pt", state)


def has_checkpoint(folder: Path) -> bool:
    """Whether there is a checkpoint to resume from."""
    return any((folder / f"{name}.pt").exists() for name in (NEW, "last", "previous"))


def load_last(folder: Path) -> Checkpoint:
    """The latest whole checkpoint. Raises CheckpointError if there is none."""
    names = [name for name in (NEW, "last", "previous") if (folder / f"{name}.pt").exists()]
    if not names:
        raise CheckpointError(f"{folder} holds no checkpoint to resume from")
    states, reasons = [], []
    for name in names:
        try:
            states.append((load_state(folder / f"{name}.pt"), name))
        except CheckpointError as error:
            reasons.append(str(error))
    for state, name in sorted(states, key=lambda entry: -entry[0]["step"]):
        for weights_name in dict.fromkeys([name, NEW, "last", "previous"]):
            try:
                weights = load_weights(folder / f"{weights_name}.safetensors")
            except CheckpointError as error:
                reasons.append(str(error))
                continue
            if _hash(weights) == state["weights"]:
                return Checkpoint(weights, state, name)
    raise CheckpointError(reasons[0] if reasons else f"{folder} holds no weights that belong to its states")


def save_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write training state atomically: tensors, numbers, strings, and lists and dicts of them. Raises OSError."""
    buffer = io.BytesIO()
    torch.save({**state, "format": FORMAT}, buffer)
    content = buffer.getvalue()
    write_atomically(path, content + hashlib.sha256(content).digest())


def load_state(path: Path, schema: Mapping[str, Any] = STATE) -> dict[str, Any]:
    """Read what `save_state` wrote, without executing anything that the file contains. Raises CheckpointError."""
    whole = _read(path)
    content, digest = whole[:-DIGEST_SIZE], whole[-DIGEST_SIZE:]
    if hashlib.sha256(content).digest() != digest:
        raise CheckpointError(f"{path} is damaged: its content does not match its hash")
    try:
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # the hash is correct, but the content is something else, such as code
        raise CheckpointError(f"{path} does not hold a training state") from error
    if isinstance(state, dict) and "step" in state and state.get("format") != FORMAT:
        raise CheckpointError(f"{path} was written by another version of Folio: its runs cannot be resumed")
    return checked(state, schema, str(path), CheckpointError)


def environment(device: torch.device, compile: bool, n_processes: int = 1) -> dict[str, Any]:
    """The versions and settings that a bit-exact resume depends on, besides the training state."""
    return {
        "torch": str(torch.__version__),  # its own type is not plain data
        "numpy": np.__version__,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "threads": torch.get_num_threads(),
        "training.compile": compile,
        "processes": n_processes,
    }


def _read(path: Path) -> bytes:
    try:
        return read_bytes(path, limit=sys.maxsize)
    except OSError as error:
        raise CheckpointError(f"cannot read {path} ({error.strerror or error})") from error


def _paths(folder: Path, name: str) -> tuple[Path, Path]:
    return folder / f"{name}.safetensors", folder / f"{name}.pt"


def _hash(weights: Mapping[str, torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name]
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)} ".encode())
        digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().data if tensor.numel() else b"")
    return digest.hexdigest()
