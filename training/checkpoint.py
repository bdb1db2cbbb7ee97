"""Checkpoints: the weights as safetensors, with the rest of the training state beside them.

A checkpoint is two files, and two files cannot be replaced at once. So each is whole by itself and says so: the weights
carry a hash of their tensors, the state one of its bytes and that of the weights it belongs to. Whatever moment a
process is killed at, there is a state with its weights among `last`, `previous` and what was about to become `last`.
"""

import hashlib
import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import nn

from runs.files import flush, write_atomically

HASH = "sha256"
DIGEST_SIZE = hashlib.sha256().digest_size
NEW = "new"  # the name of a checkpoint that is not yet known to be whole


class CheckpointError(ValueError):
    """A checkpoint cannot be read; the message is one line for the user."""


@dataclass(frozen=True)
class Checkpoint:
    """What `load_last` found."""

    weights: dict[str, torch.Tensor]
    state: dict[str, Any]
    name: str  # which of the files the state came from


def save_weights(path: Path, model: nn.Module) -> str:
    """Write a model's weights to `path`; the old file stays until the new one is whole. Returns their hash."""
    weights = _on_cpu(model)
    digest = _hash(weights)
    write_atomically(path, save(weights, metadata={HASH: digest}))
    return digest


def load_weights(path: Path) -> dict[str, torch.Tensor]:
    """Read what `save_weights` wrote. Raises CheckpointError where it is not there, or not as it was written."""
    try:
        content = path.read_bytes()
        weights = load(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        written = header["__metadata__"][HASH]
    except OSError as error:
        raise CheckpointError(f"cannot read {path} ({error.strerror or error})") from error
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is damaged: it is not whole") from error
    if written != _hash(weights):
        raise CheckpointError(f"{path} is damaged: its weights are not those that were written")
    return weights


def put_weights(model: nn.Module, weights: Mapping[str, torch.Tensor], source: Path) -> None:
    """Give a model the weights of a file. Raises CheckpointError where they are another model's."""
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise CheckpointError(f"{source}: the weights are those of another model") from error


def save_last(folder: Path, model: nn.Module, state: Mapping[str, Any]) -> None:
    """Make `last` of the model and the state; what was `last` becomes `previous` once the new one has been read back.

    Raises OSError, such as for a full disk, with `last` and `previous` as they were.
    """
    try:
        weights, state_path = _paths(folder, NEW)
        digest = save_weights(weights, model)
        save_state(state_path, {**state, "weights": digest})
        if load_state(state_path)["weights"] != _hash(load_weights(weights)):
            raise CheckpointError(f"{weights} does not belong to its state")
    except CheckpointError as error:
        raise OSError(str(error)) from error
    finally:
        for leftover in folder.glob("*.tmp"):
            leftover.unlink(missing_ok=True)
    # From here on the new one is whole, and stays so at every step.
    for before, after in (("last", "previous"), (NEW, "last")):
        for path in _paths(folder, before):
            if path.exists():
                os.replace(path, folder / f"{after}{path.suffix}")
    flush(folder)


def load_last(folder: Path) -> Checkpoint:
    """The latest state that is whole, with its weights. Raises CheckpointError where there is none."""
    found: list[tuple[int, str, str, dict[str, Any]]] = []
    reasons = []
    for name in (NEW, "last", "previous"):
        try:
            state = load_state(folder / f"{name}.pt")
        except CheckpointError as error:
            reasons.append(str(error))
            continue
        found.append((int(state["step"]), name, state["weights"], state))
    for _, name, digest, state in sorted(found, key=lambda entry: -entry[0]):
        for weights_name in dict.fromkeys([name, NEW, "last", "previous"]):
            try:
                weights = load_weights(folder / f"{weights_name}.safetensors")
            except CheckpointError as error:
                reasons.append(str(error))
                continue
            if _hash(weights) == digest:
                return Checkpoint(weights, state, name)
    if not any(folder.glob("*.pt")):
        raise CheckpointError(f"{folder} holds no checkpoint to go on from")
    raise CheckpointError(f"no checkpoint in {folder} is whole: {reasons[0]}")


def save_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write training state: tensors, numbers, strings, and lists and dicts of them."""
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    content = buffer.getvalue()
    write_atomically(path, content + hashlib.sha256(content).digest())


def load_state(path: Path) -> dict[str, Any]:
    """Read what `save_state` wrote. Executes nothing that the file contains. Raises CheckpointError."""
    try:
        whole = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read {path} ({error.strerror or error})") from error
    content, digest = whole[:-DIGEST_SIZE], whole[-DIGEST_SIZE:]
    if hashlib.sha256(content).digest() != digest:
        raise CheckpointError(f"{path} is damaged: it is not as it was written")
    try:
        return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # a file with a right hash that holds something else, such as code
        raise CheckpointError(f"{path} does not hold a training state") from error


def _paths(folder: Path, name: str) -> tuple[Path, Path]:
    return folder / f"{name}.safetensors", folder / f"{name}.pt"


def _on_cpu(model: nn.Module) -> dict[str, torch.Tensor]:
    # A copy of each: safetensors refuses tensors that share memory, as those of a head tied to the embedding do.
    copied = {"device": "cpu", "copy": True, "memory_format": torch.contiguous_format}
    return {name: tensor.detach().to(**copied) for name, tensor in model.state_dict().items()}


def _hash(weights: Mapping[str, torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name]
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)} ".encode())
        digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().data if tensor.numel() else b"")
    return digest.hexdigest()
