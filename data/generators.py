"""Saved states of random generators."""

import zlib
from collections.abc import Mapping

import torch


def restore_generator(generator: torch.Generator, state: torch.Tensor) -> None:
    """Set a generator to a saved `state`, the bytes that `get_state` returned.

    A state from another kind of device (16 bytes on a GPU, 5,056 on a CPU) does not fit. The
    generator is then seeded from a checksum of it: its draws are new, but the same after every
    restore.
    """
    if state.numel() == generator.get_state().numel():
        generator.set_state(state.cpu())
    else:
        generator.manual_seed(zlib.crc32(state.cpu().numpy().tobytes()))


def rng_states(device: torch.device) -> dict[str, torch.Tensor]:
    """The states of PyTorch's own generators, which dropout uses, for the CPU and for `device`."""
    of_device = (
        {"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {}
    )
    return {"cpu": torch.get_rng_state()} | of_device


def restore_rng_states(
    states: Mapping[str, torch.Tensor], device: torch.device
) -> None:
    """Set PyTorch's own generators to what `rng_states` returned, possibly on another kind of
    device."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
