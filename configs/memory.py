"""Memory: refuses sizes that cannot fit before anything is built; after a failure, names the keys to lower."""

import os
from collections.abc import Mapping
from typing import Any

import torch

BYTES = 4  # per float32
COPIES = 4  # per weight: the weight, its gradient, and two moments of the optimizer


def least_bytes(values: Mapping[str, Any]) -> int:
    """A lower bound in bytes of the memory that training needs: weights, gradients, optimizer and activations."""
    d_model, d_ff, n_layers = values["model.d_model"], values["model.d_ff"], values["model.n_layers"]
    weights = n_layers * (4 * d_model**2 + 2 * d_model * d_ff)
    chars = values["training.chars_per_step"] // values["training.grad_accum_steps"]
    # Half, because activations may be bfloat16. The last feed-forward may run at the masked positions only.
    activations = chars * (n_layers * d_model + (n_layers - 1) * d_ff) * BYTES // 2
    return weights * BYTES * COPIES + activations


def memory_of(device: str) -> int | None:
    """The memory of a device in bytes; None if it is not known."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_properties(torch.device(device)).total_memory
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error reports a lack of memory. On the CPU PyTorch raises a plain RuntimeError."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return "can't allocate memory" in str(error) or "not enough memory" in str(error)


def what_to_lower(values: Mapping[str, Any]) -> str:
    """The message for a run that ran out of memory: the keys that decide, with their values."""
    keys = ("training.chars_per_step", "model.d_model", "model.n_layers", "model.d_ff")
    lower = ", ".join(f"{key} (now {values[key]})" for key in keys)
    longest = max(row["seq_len"] for row in values["training.stages"])
    return (
        f"out of memory on {values['device']}: raise training.grad_accum_steps"
        f" (now {values['training.grad_accum_steps']}) to split each step,"
        f" or lower {lower} or the longest seq_len (now {longest})"
    )
