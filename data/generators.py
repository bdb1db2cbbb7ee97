"""Sets random generators to saved states, to resume a run."""

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


def restore_rng_states(
    states: Mapping[str, torch.Tensor], device: torch.device
) -> None:
    """Set PyTorch's own generators to what `training.step.rng_states` returned, possibly on another
    kind of device."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
