"""The orders in which blanks are written: the blanks with the highest scores come first.

Some orders compare the probabilities of the blanks' tokens, others only the blanks. The sampler breaks ties at random.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor


def confidence(probabilities: Tensor) -> Tensor:
    """The largest probability, `[n_blanks]` for `probabilities` `[n_blanks, n_ordinary]`.

    MaskGIT (Chang et al. 2022) compares the probabilities of tokens that it has already drawn, which favors probable
    ones. Here the choice of a blank does not depend on the draw.
    """
    return probabilities.amax(-1)


def entropy(probabilities: Tensor) -> Tensor:
    """Minus the entropy in nats, `[n_blanks]` for `probabilities` `[n_blanks, n_ordinary]`."""
    return -torch.special.entr(probabilities).sum(-1)


def margin(probabilities: Tensor) -> Tensor:
    """The gap between the two largest probabilities, `[n_blanks]` for `probabilities` `[n_blanks, n_ordinary]`.

    From Kim et al. 2025, "Train for the Worst, Plan for the Best", arXiv 2502.06768.
    """
    best = torch.nn.functional.pad(probabilities, (0, 1)).topk(2).values  # padded for vocabularies of one token
    return best[:, 0] - best[:, 1]


def random(uniform: Tensor) -> Tensor:
    """The random numbers `uniform` `[n, length]` themselves."""
    return uniform


def left_to_right(uniform: Tensor) -> Tensor:
    """Scores `[n, length]` that fall from left to right; only the shape of `uniform` `[n, length]` matters."""
    return -torch.arange(uniform.shape[1], dtype=uniform.dtype, device=uniform.device).expand_as(uniform)


BY_PROBABILITY: Mapping[str, Callable[[Tensor], Tensor]] = {
    "confidence": confidence,
    "entropy": entropy,
    "margin": margin,
}
BLIND: Mapping[str, Callable[[Tensor], Tensor]] = {"random": random, "left-to-right": left_to_right}
ORDERS = (*BLIND, *BY_PROBABILITY)
