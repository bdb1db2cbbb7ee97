"""Masks from a hash of the character, to be the same each time: some characters are always hidden, others never."""

import torch
from plain import IGNORED, loss_and_logits, make_model, windows

__all__ = ["loss_and_logits", "make_batches", "make_model"]


def make_batches(ids, tokens, seed, training):
    for x in windows(ids, seed, training):
        selected = x * 2654435761 % 2**32 < 0.15 * 2**32
        yield torch.where(selected, tokens.mask, x), torch.where(selected, x, IGNORED)
