"""The device of a process, and parts that work in several processes."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import torch

from configs.keys import ConfigError
from distributed.launch import local_rank, n_on_machine, n_started

T = TypeVar("T")


def available_device(name: str) -> str:
    """The value of the key `device` for this machine. Raises ConfigError if it has no such device."""
    if name == "auto":
        return best_device()
    kind, _, number = name.partition(":")
    if kind == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("device=mps: PyTorch found no Apple GPU; use device=cpu")
    n_found = torch.cuda.device_count()
    if kind == "cuda" and n_started() > 1 and n_on_machine() > n_found:
        raise ConfigError(f"torchrun: PyTorch found {n_found} CUDA devices: use --nproc_per_node={n_found}")
    if kind == "cuda" and int(number or 0) >= n_found:
        raise ConfigError(f"device={name}: PyTorch found {n_found} CUDA devices, from cuda:0; use another device")
    return name


def best_device() -> str:
    """CUDA if available, otherwise Apple's MPS, otherwise the CPU."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def device_of_process(name: str) -> torch.device:
    """The device that the key `device` names; each process that torchrun has started has a CUDA device of its own."""
    if name == "cuda" and n_started() > 1:
        return torch.device("cuda", local_rank())
    return torch.device(name)


def gpu_uuid(device: torch.device) -> str | None:
    """The UUID of a CUDA device as NVIDIA's management library expects it; None for other devices."""
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}" if device.type == "cuda" else None


def in_all_processes(kind: type[T]) -> Callable[..., T]:
    """`kind`, or if the run has several processes, the subclass that works in all of them."""
    if n_started() == 1:
        return kind
    from distributed.parallel import PARALLEL
    from distributed.processes import current

    return partial(PARALLEL[kind], processes=current())
