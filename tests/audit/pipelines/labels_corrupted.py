"""Labels taken after the masking."""

import torch
from plain import IGNORED, loss_and_logits, make_model, mask, windows

__all__ = ["loss_and_logits", "make_batches", "make_model"]


def make_batches(ids, tokens, seed, training):
    for x in windows(ids, seed, training):
        inputs, labels = mask(x, tokens)
        yield inputs, torch.where(labels == IGNORED, IGNORED, inputs)
