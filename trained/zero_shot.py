"""Zero-shot choices between two texts: the one with the higher pseudo-log-likelihood (Salazar et al. 2020)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from trained.batches import batches_by_length, padded
from trained.load import Trained

APART = 8  # masked at once is every eighth character, about as many as in training


@torch.inference_mode()
def pseudo_log_likelihoods(trained: Trained, texts: Sequence[Tensor], apart: int = APART) -> Tensor:
    """The sum over the characters of each text of log P(character | the others), `[n_texts]` in nats (float64).

    Every `apart`-th character is masked at once, so that a text takes `apart` passes of the model. Salazar et al. mask
    one character per pass. Characters that the run does not know are left out: it cannot predict them.
    """
    mask_token, n_ordinary = trained.vocabulary.mask_token, trained.vocabulary.n_ordinary
    sums = torch.zeros(len(texts), dtype=torch.float64)
    for batch in batches_by_length(texts):
        ids, attended = padded([texts[i] for i in batch])
        known = ids < n_ordinary if attended is None else attended & (ids < n_ordinary)
        for first in range(min(apart, ids.shape[1])):
            masked = torch.zeros_like(known)
            masked[:, first::apart] = known[:, first::apart]
            positions = masked.flatten().nonzero().flatten()
            logits = trained.model(ids.masked_fill(masked, mask_token), positions, attended)
            targets = ids.flatten()[positions]
            losses = logits[:, :n_ordinary].double().log_softmax(-1).gather(1, targets[:, None]).squeeze(1)
            sums.index_add_(0, torch.tensor(batch)[positions // ids.shape[1]], losses)
    return sums
