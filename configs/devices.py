"""The devices of this machine."""

import torch

from configs.keys import ConfigError
from distributed.launch import n_on_machine, n_started


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


def gpu_uuid(device: torch.device) -> str | None:
    """The UUID of a CUDA device as NVIDIA's management library expects it; None for other devices."""
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}" if device.type == "cuda" else None
