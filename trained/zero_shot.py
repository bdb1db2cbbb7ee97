"""Zero-shot choices between two texts: the one with the higher pseudo-log-likelihood (Salazar et al. 2020)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from trained.batches import batches_by_length, padded
from trained.load import Trained


@torch.inference_mode()
def pseudo_log_likelihoods(trained: Trained, texts: Sequence[Tensor]) -> Tensor:
    """The sum over the characters of each text of log P(character | all others), `[n_texts]` in nats (float64).

    Characters that the run does not know are left out: it cannot predict them.
    """
    mask_token, n_ordinary = trained.vocabulary.mask_token, trained.vocabulary.n_ordinary
    places = [(i, t) for i, text in enumerate(texts) for t in (text < n_ordinary).nonzero().flatten().tolist()]
    sums = torch.zeros(len(texts), dtype=torch.float64)
    copies = [texts[i] for i, _ in places]  # each text once per character
    for batch in batches_by_length(copies):
        ids, mask = padded([copies[j] for j in batch])
        text, column = torch.tensor([places[j] for j in batch]).T
        row = torch.arange(len(batch))
        targets = ids[row, column].clone()
        ids[row, column] = mask_token
        logits = trained.model(ids, (row * ids.shape[1] + column)[:, None], mask)
        losses = logits[:, :n_ordinary].double().log_softmax(-1).gather(1, targets[:, None])
        sums.index_add_(0, text, losses.squeeze(1))
    return sums
