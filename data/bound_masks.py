"""The masks by which the any-order bound is estimated: the same for all runs with the same tokens."""

import numpy as np
import torch

from data.protocol import SEED, ValidationSet


def bound_masks(validation: ValidationSet, rounds: int) -> torch.Tensor:
    """Masks for the any-order bound, the same on every machine: bool `[rounds, n_windows, 256]`,
    never on special tokens.

    The numbers of masked positions are uniform in 1 ... 256, or up to that of maskable tokens, in a
    way that lowers the variance of the estimate: the range has `rounds` equal parts, each window
    has a number in each part, and the windows cover each part evenly.
    """
    generator = np.random.Generator(np.random.PCG64([SEED, rounds]))
    n_windows, seq_len = validation.windows.shape
    places = (
        generator.permutation(n_windows) + generator.random(n_windows)
    ) / n_windows
    shares = torch.from_numpy((np.arange(rounds)[:, None] + places) / rounds)
    everywhere = torch.ones(n_windows, seq_len, dtype=torch.bool)
    maskable = validation.only_maskable(everywhere).cpu()
    keys = torch.from_numpy(generator.random((rounds, n_windows, seq_len)))
    ranks = keys.masked_fill(~maskable, 2.0).argsort(-1).argsort(-1)
    counts = (shares * maskable.sum(-1)).long() + 1
    masked = (ranks < counts[..., None]) & maskable
    return masked.to(validation.windows.device)
