"""Saved states of random generators."""

import zlib

import torch


def restore_generator(generator: torch.Generator, state: torch.Tensor) -> None:
    """Set a generator to a saved `state`, the bytes that `get_state` returned.

    A state from another kind of device (16 bytes on a GPU, 5,056 on a CPU) does not fit. The generator is then seeded
    from a checksum of it: its draws are new, but the same after every restore.
    """
    if state.numel() == generator.get_state().numel():
        generator.set_state(state.cpu())
    else:
        generator.manual_seed(zlib.crc32(state.cpu().numpy().tobytes()))
