"""Zero-shot choices between two texts: the one with the higher pseudo-log-likelihood (Salazar et al. 2020)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from trained.batches import batches_by_length, padded
from trained.load import Trained


@torch.inference_mode()
def pseudo_log_likelihoods(trained: Trained, texts: Sequence[Tensor]) -> Tensor:
    """The sum over the characters of each text of log P(character | all others), `[n_texts]` in nats (float64)."""
    mask_token = trained.vocabulary.mask_token
    rows = [(i, t) for i, text in enumerate(texts) for t in range(len(text))]
    sums = torch.zeros(len(texts), dtype=torch.float64)
    hidden = [texts[i] for i, _ in rows]  # each text once per character
    for batch in batches_by_length(hidden):
        ids, mask = padded([hidden[j] for j in batch])
        places = torch.tensor([rows[j] for j in batch])
        lines = torch.arange(len(batch))
        targets = ids[lines, places[:, 1]].clone()
        ids[lines, places[:, 1]] = mask_token
        logits = trained.model(ids, (lines * ids.shape[1] + places[:, 1])[:, None], mask)
        losses = logits[:, : trained.vocabulary.n_ordinary].double().log_softmax(-1).gather(1, targets[:, None])
        sums.index_add_(0, places[:, 0], losses.squeeze(1))
    return sums
