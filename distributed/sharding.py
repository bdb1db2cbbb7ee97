"""Tensors that are sharded over all processes, for models that do not fit on one device.

FSDP2 (`fully_shard`) keeps a block of the rows of every parameter in each process. It gathers a layer's parameters when
they are needed, and adds up their gradients. Gradients and optimizer states are sharded in the same way.
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils._pytree import tree_map


def shard(model: nn.Module, device: torch.device) -> None:
    """Shard the parameters of a model on the CPU over the devices of all processes.

    One layer of `encoder.layers` at a time is moved to the device and sharded there; later, one at a time is gathered.
    """
    from torch.distributed.device_mesh import init_device_mesh  # these imports take a second
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for layer in model.encoder.layers:  # type: ignore[union-attr]
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    if hasattr(model, "forward_pairs"):
        register_fsdp_forward_method(model, "forward_pairs")


def is_sharded(tensor: Any) -> bool:
    """Whether a tensor is one of PyTorch's DTensors; their import takes a second."""
    return hasattr(tensor, "full_tensor")


def whole(content: Any, is_kept: bool = True) -> Any:
    """Tensors, or lists and dictionaries of them, gathered from all processes, which must all call this.

    Sharded tensors are gathered one at a time and moved to the CPU, because the device may not hold all of them. They
    are None in a process that does not keep them.
    """

    def gathered(value: Any) -> Any:
        if not is_sharded(value):
            return value
        full = value.full_tensor()
        return full.cpu() if is_kept else None

    return tree_map(gathered, content)


def sharded_like(tensor: torch.Tensor, example: Any) -> torch.Tensor:
    """A whole tensor, sharded if `example` is. Each process takes its part, so they exchange nothing."""
    if not is_sharded(example):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    whole_tensor = tensor.to(example.device)
    return distribute_tensor(whole_tensor, example.device_mesh, example.placements, src_data_rank=None)


@torch.no_grad()
def load_whole(model: nn.Module, weights: Mapping[str, torch.Tensor]) -> None:
    """Load whole weights. Raises RuntimeError if they are those of a different model."""
    state = model.state_dict()
    model.load_state_dict(
        {name: sharded_like(weight, state[name]) if name in state else weight for name, weight in weights.items()}
    )
