"""The pseudo-log-likelihood of texts (Salazar et al. 2020, arXiv 1910.14659)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from trained.batches import batches_by_length, padded, pieces
from trained.load import Trained
from trained.template import readable


@torch.inference_mode()
def scores_of(trained: Trained, texts: Sequence[Tensor]) -> list[float]:
    """The pseudo-log-likelihood in nats of each text of token ids `[n]`, which may be UNREADABLE:
    the sum of log p(token | all other tokens of its window).

    Each ordinary token is masked once, in the window that decides it (see `pieces`). Other tokens
    count 0.
    """
    vocabulary = trained.vocabulary
    windows: list[Tensor] = []  # one per masked token
    columns: list[int] = []
    text_of: list[int] = []
    for number, ids in enumerate(texts):
        is_scored = (ids >= 0) & (ids < vocabulary.n_ordinary)
        for window, part in pieces(len(ids), trained.longest):
            scored = is_scored[part].nonzero().flatten() + part.start - window.start
            columns += scored.tolist()
            windows += [ids[window]] * len(scored)
            text_of += [number] * len(scored)

    scores = [0.0] * len(texts)
    for batch in batches_by_length(windows, equal_lengths=not trained.takes_mask):
        ids, mask = padded([windows[i] for i in batch])
        rows = torch.arange(len(batch))
        masked = torch.tensor([columns[i] for i in batch])
        tokens = ids[rows, masked]
        ids[rows, masked] = vocabulary.mask_token
        padding = {} if mask is None else {"attention_mask": mask}
        positions = rows * ids.shape[1] + masked
        logits = trained.model(
            readable(ids, vocabulary.mask_token), positions, **padding
        )
        log_probs = logits[:, : vocabulary.n_ordinary].double().log_softmax(-1)
        for i, value in zip(batch, log_probs[rows, tokens].tolist(), strict=True):
            scores[text_of[i]] += value

    return scores
