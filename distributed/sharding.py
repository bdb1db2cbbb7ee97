"""Tensors that are sharded over all processes, for models that do not fit on one device.

FSDP2 (`fully_shard`) keeps a block of the rows of every parameter in each process. It gathers a
layer's parameters when they are needed, and adds up their gradients. Gradients and optimizer states
are sharded in the same way.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook

from distributed.processes import Processes
from training.checkpoint import is_sharded


def sharded(build: Callable[[], nn.Module], device: torch.device) -> nn.Module:
    """A model whose parameters are sharded over the devices of all processes; `build` builds it on
    the CPU.

    A layer is sharded when it is added to an `nn.ModuleList`. If the next one is built after that,
    as in the default architecture, no process ever has the whole model. Later, one layer at a time
    is gathered.
    """
    # these imports take a second
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    mesh = init_device_mesh(device.type, (dist.get_world_size(),))

    def shard_layer(parent: nn.Module, name: str, layer: nn.Module | None) -> None:
        if isinstance(parent, nn.ModuleList) and layer is not None:
            fully_shard(layer.to(device), mesh=mesh)

    hook = register_module_module_registration_hook(shard_layer)
    try:
        model = build()
    finally:
        hook.remove()
    fully_shard(model.to(device), mesh=mesh)
    model.register_forward_hook(release)
    if hasattr(model, "forward_pairs"):
        register_fsdp_forward_method(model, "forward_pairs")
    return model


def release(model: Any, *_: Any) -> None:
    """After a call without gradients, free the gathered parameters outside of the layers; FSDP2
    would keep them."""
    if not torch.is_grad_enabled():
        model.reshard()


def whole(tensor: Any) -> torch.Tensor:
    """A tensor on the CPU, gathered from all processes if it is sharded; then all of them must call
    this."""
    return tensor.full_tensor().cpu() if is_sharded(tensor) else tensor


def rows_of(tensor: Any) -> slice:
    """The rows of a sharded tensor that this process has."""
    return Processes(
        tensor.device_mesh.get_local_rank(), tensor.device_mesh.size()
    ).share(len(tensor))


def sharded_like(tensor: torch.Tensor, example: Any) -> torch.Tensor:
    """Shard a whole tensor like `example`; returns it as it is if `example` is not sharded.

    Each process copies its rows. They exchange nothing.
    """
    if not is_sharded(example):
        return tensor
    from torch.distributed.tensor import DTensor

    rows = tensor[rows_of(example)].to(example.device, copy=True)
    layout = {"run_check": False, "shape": tensor.shape, "stride": tensor.stride()}
    return DTensor.from_local(rows, example.device_mesh, example.placements, **layout)


@torch.no_grad()
def load_whole(model: nn.Module, weights: Mapping[str, torch.Tensor]) -> None:
    """Load whole weights. Raises RuntimeError if they are those of a different model."""
    state = model.state_dict()
    model.load_state_dict(
        {
            name: sharded_like(weight, state[name]) if name in state else weight
            for name, weight in weights.items()
        }
    )
