"""Checkpoints: the weights as safetensors, with the rest of the training state beside them."""

import io
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import nn

from training.run_folder import write_atomically


def save_weights(path: Path, model: nn.Module) -> None:
    """Write a model's weights to `path` as safetensors; the old file stays until the new one is whole."""
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    write_atomically(path, save(weights))


def load_weights(path: Path, model: nn.Module) -> None:
    """Read weights that `save_weights` wrote into a model of the same shape."""
    model.load_state_dict(load_file(path))


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Write training state: tensors, numbers, strings, and lists and dicts of them."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_atomically(path, buffer.getvalue())


def load_state(path: Path) -> dict[str, Any]:
    """Read what `save_state` wrote. Executes nothing that the file contains."""
    return torch.load(path, map_location="cpu", weights_only=True)
