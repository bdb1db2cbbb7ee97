"""Memory: refuses sizes that cannot fit before anything is built; after a failure, names the keys
to lower."""

import os
from typing import Any

from configs.keys import ConfigError
from distributed.launch import n_on_machine, n_started

BYTES = 4  # per float32
COPIES = 3  # per weight: the weight, its gradient, and the momentum of Muon; AdamW needs one more


def check_memory(values: dict[str, Any]) -> None:
    """Raise ConfigError if training cannot fit into the memory of its device, or a batch into the
    index of a kernel."""
    _check_lookups(values)
    needed = least_bytes(values) / 2**30
    available = _memory_of(values["device"]) / 2**30
    if needed > available:
        raise ConfigError(
            f"training needs at least {needed:,.0f} GiB of memory, {values['device']} has {available:,.0f}:"
            f" lower {_sizes(values)}"
        )


def _check_lookups(values: dict[str, Any]) -> None:
    """Raise ConfigError if the lookups of n-grams in one batch have more numbers than a CUDA kernel
    can index."""
    if values["device"].startswith("cuda"):
        from model.ngrams import NGRAMS

        n_ngrams = sum(len(ngram) <= values["model.ngrams"] for ngram in NGRAMS)
        row = values["model.d_model"] // values["model.ngram_parts"]
        if (
            _chars_per_batch(values) * n_ngrams * row >= 2**31
        ):  # PyTorch counts in 32 bits
            raise ConfigError(
                f"the n-grams of a batch exceed 2^31 numbers: raise {_now(values, 'training.grad_accum_steps')}"
            )


def _chars_per_batch(values: dict[str, Any]) -> int:
    return (
        values["training.chars_per_step"]
        // values["training.grad_accum_steps"]
        // n_started()
    )


def least_bytes(values: dict[str, Any]) -> int:
    """A lower bound in bytes of the memory that a process needs: weights, gradients, optimizer,
    table, activations."""
    d_model = values["model.d_model"]
    d_ff = values["model.d_ff"]
    n_layers = values["model.n_layers"]
    weights = n_layers * (4 * d_model**2 + 2 * d_model * d_ff)
    table = 0
    if values["model.ngrams"] > 1:
        table = values["model.ngram_rows"] * d_model // values["model.ngram_parts"]
    # Half, because activations may be bfloat16. The last feed-forward may run at the masked
    # positions only.
    n_wide = n_layers - 1
    if values["training.activation_checkpointing"]:
        n_wide = min(1, n_wide)
    per_char = (n_layers * d_model + n_wide * d_ff) * BYTES // 2
    activations = _chars_per_batch(values) * per_char
    n_shards = n_started() if values["training.parallel"] == "fsdp" else 1
    return (weights * COPIES + table) * BYTES // n_shards + activations


def _memory_of(device: str) -> int:
    """The memory of a device in bytes: for the CPU, the share of a process."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.get_device_properties(torch.device(device)).total_memory
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // n_on_machine()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error reports a lack of memory. On the CPU PyTorch raises a plain RuntimeError."""
    import torch

    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return "can't allocate memory" in str(error) or "not enough memory" in str(error)


def what_to_lower(values: dict[str, Any]) -> str:
    """The message for a run that ran out of memory: the keys that decide, with their values."""
    longest = max(row["seq_len"] for row in values["training.stages"])
    return (
        f"out of memory on {values['device']}: raise {_now(values, 'training.grad_accum_steps')}"
        f" to split each step, or lower {_sizes(values)} or the longest seq_len (now {longest})"
    )


def _sizes(values: dict[str, Any]) -> str:
    keys = ["model.d_model", "model.n_layers", "model.d_ff", "training.chars_per_step"]
    if values["model.ngrams"] > 1:
        keys.append("model.ngram_rows")
    return ", ".join(_now(values, key) for key in keys)


def _now(values: dict[str, Any], key: str) -> str:
    return f"{key} (now {values[key]})"
