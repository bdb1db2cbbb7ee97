"""The orders in which blanks are written: the blanks with the highest scores come first.

Some orders compare the probabilities of the blanks' tokens, others only the blanks. The sampler breaks ties at random.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional as F


def margin(probabilities: Tensor) -> Tensor:
    """The gap between the two largest of the probabilities `[n_blanks, n_ordinary]`, `[n_blanks]`.

    From Kim et al. 2025, "Train for the Worst, Plan for the Best", arXiv 2502.06768.
    """
    best = F.pad(probabilities, (0, 1)).topk(2).values  # padded for vocabularies of one token
    return best[:, 0] - best[:, 1]


# From the probabilities `[n_blanks, n_ordinary]` of the blanks' tokens to scores `[n_blanks]`. MaskGIT (Chang et al.
# 2022) compares the probabilities of tokens that it has drawn, which favors probable ones. Here the draw comes later.
BY_PROBABILITY: Mapping[str, Callable[[Tensor], Tensor]] = {
    "confidence": lambda probabilities: probabilities.amax(-1),
    "entropy": lambda probabilities: -torch.special.entr(probabilities).sum(-1),  # in nats
    "margin": margin,
}
# From random numbers `[n, length]` to scores of the same shape.
BLIND: Mapping[str, Callable[[Tensor], Tensor]] = {
    "random": lambda uniform: uniform,
    "left-to-right": lambda uniform: -torch.ones_like(uniform).cumsum(1),  # falls from column to column
}
ORDERS = (*BLIND, *BY_PROBABILITY)
