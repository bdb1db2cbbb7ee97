"""The devices of this machine."""

import logging
import warnings

import torch

from configs.keys import ConfigError
from distributed.launch import n_on_machine, n_started

# Warnings about what is intended: graphs are recorded after eager steps, and float32 is exact.
INTENDED = (
    "This instance was constructed with capturable=True",
    "TensorFloat32 tensor cores for float32 matrix",
    r"\s*Online softmax is disabled",  # in PyTorch 2.11, because a reduction is split
)


def available_device(name: str) -> str:
    """The value of the key `device` for this machine, with CUDA prepared. Raises ConfigError
    without such a device."""
    name = best_device() if name == "auto" else name
    kind, _, number = name.partition(":")
    if kind == "cpu":  # or Inductor warns where a CUDA compiler is installed without a GPU
        logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
    if kind == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("device=mps: PyTorch found no Apple GPU; use device=cpu")
    n_found = torch.cuda.device_count()
    if kind == "cuda" and int(number or 0) >= n_found:
        raise ConfigError(
            f"device={name}: PyTorch found {n_found} CUDA devices, numbered from 0; use another device"
        )
    if kind == "cuda" and n_started() > 1 and n_on_machine() > n_found:
        raise ConfigError(
            f"torchrun: PyTorch found {n_found} CUDA devices: use --nproc_per_node={n_found}"
        )
    if kind == "cuda":
        # the gradients of cuDNN's attention can differ from run to run
        torch.backends.cuda.enable_cudnn_sdp(False)
        for message in INTENDED:
            warnings.filterwarnings("ignore", message=message)
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
    reasons = [
        str(each.message).removeprefix("CUDA initialization: ").splitlines()[0] for each in caught
    ]
    return "; ".join(["found no CUDA device", *(reason.partition(". ")[0] for reason in reasons)])


def gpu_uuid(device: torch.device) -> str | None:
    """The UUID of a CUDA device as NVIDIA's management library expects it; None for other devices."""
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}" if device.type == "cuda" else None
