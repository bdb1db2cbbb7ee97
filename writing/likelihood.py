"""The exact likelihood of texts under a sampler that writes one token at a time in a given order.

Such a sampler is an autoregressive model: if the order is known, or follows from the tokens written so far, the
probability of a text is the product of those of its tokens (Uria et al. 2014; Hoogeboom et al. 2022). The order
matters because the conditionals of a masked model need not fit together: they belong to no single joint distribution.
"""

from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from writing.sampler import Sampler


@torch.no_grad()
def order_losses(sampler: Sampler, texts: Tensor, generators: Sequence[Generator]) -> Tensor:
    """-log P(token | tokens written before it) in nats at each position of `texts` `[n, length]`: float64, same shape.

    The order is the sampler's, from blanks only; its temperature is taken as 1. With the order `random`, each text has
    an order of its own, and the mean over orders is the any-order bound. `[UNK]` is visible from the beginning, and its
    loss is 0.
    """
    ids = torch.where(texts < sampler.n_ordinary, sampler.mask_token, texts)
    losses = torch.zeros(texts.shape, dtype=torch.float64, device=texts.device)
    while (blanks := ids == sampler.mask_token).any():
        chosen, log_probs = sampler.choose(ids, blanks.any(1).long(), generators)
        losses[chosen] = -log_probs.gather(1, texts[chosen][:, None])[:, 0]
        ids = torch.where(chosen, texts, ids)
    return losses
