"""The devices of this machine."""

import warnings

import torch

from configs.keys import ConfigError
from distributed.launch import n_on_machine, n_started


def available_device(name: str) -> str:
    """The value of the key `device` for this machine. Raises ConfigError if it has no such
    device."""
    name = best_device() if name == "auto" else name
    kind, _, number = name.partition(":")
    if kind == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("device=mps: PyTorch found no Apple GPU; use device=cpu")
    if kind != "cuda":
        return name

    n_devices = torch.cuda.device_count()
    if int(number or 0) >= n_devices:
        raise ConfigError(
            f"device={name}: PyTorch found {n_devices} CUDA devices, numbered from 0; use another device"
        )

    if n_started() > 1 and number:
        raise ConfigError(
            f"device={name}: each process of torchrun needs a device of its own; use device=cuda"
        )
    if n_started() > 1 and n_on_machine() > n_devices:
        raise ConfigError(
            f"torchrun: PyTorch found {n_devices} CUDA devices: use --nproc_per_node={n_devices}"
        )
    return name


def best_device() -> str:
    """CUDA if available, otherwise Apple's MPS, otherwise the CPU."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def without_cuda() -> str | None:
    """Why there is no CUDA device to compute on, in one line; None if there is one."""
    # PyTorch warns once, for example of an old driver
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if torch.cuda.is_available():
            return None

    reasons = ["found no CUDA device"]
    for warning in caught:
        text = (
            str(warning.message).removeprefix("CUDA initialization: ").splitlines()[0]
        )
        reasons.append(text.partition(". ")[0])

    return "; ".join(reasons)


def gpu_uuid(device: torch.device) -> str | None:
    """The UUID of a CUDA device as NVIDIA's management library expects it; None for other devices."""
    if device.type != "cuda":
        return None
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"
