"""Zero-shot choices between two texts: the one with the higher pseudo-log-likelihood (Salazar et
al. 2020)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from trained.batches import batches_by_length, padded
from trained.load import Trained

# A quarter of the characters. If only one of every eight is masked, the rest of its word gives it
# away.
WIDTH = 2
PERIOD = 8


@torch.inference_mode()
def pseudo_log_likelihoods(
    trained: Trained, texts: Sequence[Tensor], width: int = WIDTH, period: int = PERIOD
) -> Tensor:
    """The sum over the characters of each text of log P(character | the visible ones), `[n_texts]`
    in nats (float64).

    In each pass of the model, `width` neighbors of every `period` are masked. A text takes `period`
    passes, and a character counts with the mean over those in which it is masked. With a width of 1
    and a period as long as the texts, this is the sum of Salazar et al. Characters that the run
    does not know are left out: it cannot predict them.
    """
    mask_token = trained.vocabulary.mask_token
    n_ordinary = trained.vocabulary.n_ordinary
    sums = torch.zeros(len(texts), dtype=torch.float64)
    for batch in batches_by_length(texts):
        ids, attended = padded([texts[i] for i in batch])
        known = ids < n_ordinary if attended is None else attended & (ids < n_ordinary)
        for first in range(period):
            masked = known & ((torch.arange(ids.shape[1]) - first) % period < width)
            positions = masked.flatten().nonzero().flatten()
            if not len(positions):
                continue
            logits = trained.model(
                ids.masked_fill(masked, mask_token), positions, attended
            )
            targets = ids.flatten()[positions, None]
            log_probs = (
                logits[:, :n_ordinary].double().log_softmax(-1).gather(1, targets)
            )
            numbers = torch.tensor(batch)[positions // ids.shape[1]]
            sums.index_add_(0, numbers, log_probs.squeeze(1))

    return sums / width
