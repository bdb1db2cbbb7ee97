"""The device of a process."""

import torch

from distributed.processes import local_rank, n_started


def device_of_process(name: str) -> torch.device:
    """The device that the key `device` names; each process that torchrun has started has a CUDA device of its own."""
    if name == "cuda" and n_started() > 1:
        return torch.device("cuda", local_rank())
    return torch.device(name)


def gpu_uuid(device: torch.device) -> str | None:
    """The UUID of a CUDA device as NVIDIA's management library expects it; None for other devices."""
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}" if device.type == "cuda" else None


def best_device() -> str:
    """CUDA if available, otherwise Apple's MPS, otherwise the CPU."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"
