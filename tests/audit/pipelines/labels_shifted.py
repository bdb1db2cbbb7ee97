"""Labels shifted by one, as for a causal model."""

import torch
from plain import IGNORED, loss_and_logits, make_model, mask, windows

__all__ = ["loss_and_logits", "make_batches", "make_model"]


def make_batches(ids, tokens, seed, training):
    for x in windows(ids, seed, training):
        inputs, labels = mask(x, tokens)
        following = torch.cat([x[:, 1:], x[:, :1]], dim=1)
        yield inputs, torch.where(labels == IGNORED, IGNORED, following)
