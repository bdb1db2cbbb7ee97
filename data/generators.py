"""Random generators that go on where they were."""

import zlib

import torch


def go_on_from(generator: torch.Generator, state: torch.Tensor) -> None:
    """Put a generator into a saved `state`.

    Where that is the state of another kind of device it cannot be had here: the draws to come are then others, which
    follow from the state, so that they are the same each time.
    """
    if state.numel() == generator.get_state().numel():
        generator.set_state(state.cpu())
    else:
        generator.manual_seed(zlib.crc32(state.cpu().numpy().tobytes()))
