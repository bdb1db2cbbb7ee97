"""Tensors that are sharded over all processes, for models that do not fit on one device.

FSDP2 (`fully_shard`) keeps a block of the rows of every parameter in each process. It gathers a layer's parameters when
they are needed, and adds up their gradients. Gradients and optimizer states are sharded in the same way.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

Weights = dict[str, torch.Tensor]  # by name


def shard(model: nn.Module) -> None:
    """Shard a model's parameters over all processes. Its layers, in `encoder.layers`, are gathered one at a time."""
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method  # the import takes a second

    for layer in model.encoder.layers:  # type: ignore[union-attr]
        fully_shard(layer)
    fully_shard(model)
    if hasattr(model, "forward_pairs"):
        register_fsdp_forward_method(model, "forward_pairs")


def is_sharded(tensor: Any) -> bool:
    """Whether a tensor is one of PyTorch's DTensors; their import takes a second."""
    return hasattr(tensor, "full_tensor")


def local(tensor: Any) -> torch.Tensor:
    """The part of a tensor that this process has: all of it if it is not sharded."""
    return tensor.to_local() if is_sharded(tensor) else tensor


def whole(content: Any) -> Any:
    """Tensors, or lists and dictionaries of them, gathered from all processes, which must all call this."""
    return tree_map(lambda value: value.full_tensor() if is_sharded(value) else value, content)


def sharded_like(tensor: torch.Tensor, example: Any) -> torch.Tensor:
    """A whole tensor, sharded if `example` is."""
    if not is_sharded(example):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor.to(example.device), example.device_mesh, example.placements)


def whole_weights(model: nn.Module) -> Weights:
    """All weights and buffers by name, gathered from all processes."""
    return whole(model.state_dict())


@torch.no_grad()
def load_whole(model: nn.Module, weights: Mapping[str, torch.Tensor]) -> None:
    """Load whole weights. Raises RuntimeError if they are those of a different model."""
    state = model.state_dict()
    model.load_state_dict(
        {name: sharded_like(weight, state[name]) if name in state else weight for name, weight in weights.items()}
    )
